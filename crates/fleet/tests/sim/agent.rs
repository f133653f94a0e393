//! The agent of a cluster: lists its instances, acts on some of them, and reports; slowly, twice, out of
//! order, and sometimes wrongly.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet::commands::agent_report::{ingest_reports, report_cluster};
use fleet::model::instance::{Instance, Phase};
use fleet::store::index::FeedKey;
use serde_json::{Map, Value, json};

use super::{CLUSTERS, Sim};

pub async fn run(sim: Arc<Sim>, cluster: &'static str) {
    let mut stale: Map<String, Value> = Map::new();
    // Instances that it rejected, even if only by repeating an old report.
    let mut rejected: BTreeSet<String> = BTreeSet::new();
    loop {
        tokio::time::sleep(sim.world.millis(50, 5_000)).await;
        let calm = sim.world.calm.is_cancelled();
        let Some(replica) = sim.replicas.any(&sim.world) else { continue };
        let fleet = replica.fleet;
        let (Some(kind), Some(object)) =
            (fleet.catalogue().kind("kafka").cloned(), fleet.index.cluster(cluster))
        else {
            continue;
        };
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let heartbeat = report_cluster(&fleet, &kind, cluster, &ready);
        let _ = tokio::time::timeout(Duration::from_secs(60), heartbeat).await;
        // As in the API: a list is never older than the one before.
        let caught_up = tokio::time::timeout(Duration::from_secs(60), fleet.index.catch_up()).await;
        if !matches!(caught_up, Ok(Ok(()))) {
            continue;
        }
        let rows = fleet.index.delta(&FeedKey::agent("kafka", cluster), None).changed;
        let listed: BTreeSet<&str> = rows.iter().map(|row| row.instance.id.as_str()).collect();
        let removed = |(at, id): &(String, String)| {
            at == cluster && rejected.contains(id) && !listed.contains(id.as_str())
        };
        sim.outside.running.lock().retain(|one| !removed(one));
        let mut reports = Map::new();
        for row in &rows {
            if sim.world.unlucky(0.3) {
                continue;
            }
            let report = act(&sim, cluster, &row.instance);
            reports.insert(row.instance.id.clone(), report);
        }
        if sim.world.unlucky(0.1) {
            // An old report again, and one of an unknown instance.
            reports.extend(stale.clone());
            reports.insert("unknown".into(), json!({"conditions": "nonsense"}));
        }
        let refusals = reports.iter().filter(|(_, report)| is_rejected(report));
        rejected.extend(refusals.map(|(id, _)| id.clone()));
        stale = reports.clone();
        let ingested = ingest_reports(&fleet, &kind, &object, &reports);
        let ingested = tokio::time::timeout(Duration::from_secs(60), ingested).await;
        if calm && matches!(ingested, Ok(Ok(_))) {
            sim.recovered.lock().insert(cluster);
        }
    }
}

/// Returns once every agent has listed its instances and reported them after the faults ended: until
/// then one may wait for a process that is gone, having removed what it could not report.
pub async fn recovered(sim: &Sim) {
    while sim.recovered.lock().len() < CLUSTERS.len() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn act(sim: &Sim, cluster: &str, instance: &Instance) -> Value {
    let key = (cluster.to_owned(), instance.id.clone());
    let mut running = sim.outside.running.lock();
    match instance.phase {
        Phase::Deprovision => {
            running.remove(&key);
            condition("False", "Deleted", "")
        }
        Phase::Provisioning if sim.world.unlucky(0.05) => {
            running.remove(&key);
            condition("False", "Rejected", "Cluster has insufficient resources")
        }
        Phase::Provisioning if sim.world.unlucky(0.05) => condition("False", "Rejected", "later"),
        _ if sim.world.unlucky(0.05) => condition("False", "Error", "the disk is full"),
        _ if sim.world.unlucky(0.1) => condition("Unknown", "", ""),
        _ => {
            running.insert(key);
            let mut report = condition("True", "", "");
            let router = format!("router.apps.{cluster}");
            report["routes"] = json!([
                {"name": "bootstrap", "prefix": "", "router": router},
                {"name": "admin", "prefix": "admin-server", "router": router},
            ]);
            report["versions"] = json!({"kafka": "3.0"});
            report
        }
    }
}

fn is_rejected(report: &Value) -> bool {
    report["conditions"][0]["reason"] == "Rejected"
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}]})
}
