//! The agent of a cluster: it looks at what it should run, does some of it, and says so; slowly,
//! twice, out of order, and sometimes wrongly.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet::commands::agent_report::{ingest_reports, report_cluster};
use fleet::model::instance::{Instance, Phase};
use serde_json::{Map, Value, json};

use super::Sim;

pub async fn live(sim: Arc<Sim>, cluster: &'static str) {
    let mut stale: Map<String, Value> = Map::new();
    // What it said it would not run, if only by saying an old thing again.
    let mut rejected: BTreeSet<String> = BTreeSet::new();
    loop {
        tokio::time::sleep(sim.world.millis(50, 5_000)).await;
        let Some(replica) = sim.replicas.any(&sim.world) else { continue };
        let fleet = replica.fleet;
        let (Some(kind), Some(object)) =
            (fleet.catalogue().kind("kafka").cloned(), fleet.index.cluster(cluster))
        else {
            continue;
        };
        let well = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let alive = report_cluster(&fleet, &kind, cluster, &well);
        let _ = tokio::time::timeout(Duration::from_secs(60), alive).await;
        // As the API does: what an agent is told is never older than what it was told before.
        let fresh = tokio::time::timeout(Duration::from_secs(60), fleet.index.catch_up()).await;
        if !matches!(fresh, Ok(Ok(()))) {
            continue;
        }
        let told = fleet.index.for_agent("kafka", cluster, None).changed;
        let listed: BTreeSet<&str> = told.iter().map(|row| row.instance.id.as_str()).collect();
        let taken_away = |(at, id): &(String, String)| {
            at == cluster && rejected.contains(id) && !listed.contains(id.as_str())
        };
        sim.outside.running.lock().retain(|one| !taken_away(one));
        let mut reports = Map::new();
        for row in &told {
            if sim.world.unlucky(0.3) {
                continue;
            }
            let report = act(&sim, cluster, &row.instance);
            reports.insert(row.instance.id.clone(), report);
        }
        if sim.world.unlucky(0.1) {
            // What it said a while ago, once more; and of things that it knows nothing of.
            reports.extend(stale.clone());
            reports.insert("unknown".into(), json!({"conditions": "nonsense"}));
        }
        let refusals = reports.iter().filter(|(_, report)| is_rejected(report));
        rejected.extend(refusals.map(|(id, _)| id.clone()));
        stale = reports.clone();
        let said = ingest_reports(&fleet, &kind, &object, &reports);
        let _ = tokio::time::timeout(Duration::from_secs(60), said).await;
    }
}

fn act(sim: &Sim, cluster: &str, instance: &Instance) -> Value {
    let key = (cluster.to_owned(), instance.id.clone());
    let mut running = sim.outside.running.lock();
    match instance.phase {
        Phase::Deprovision => {
            running.remove(&key);
            says("False", "Deleted", "")
        }
        Phase::Provisioning if sim.world.unlucky(0.05) => {
            running.remove(&key);
            says("False", "Rejected", "Cluster has insufficient resources")
        }
        Phase::Provisioning if sim.world.unlucky(0.05) => says("False", "Rejected", "later"),
        _ if sim.world.unlucky(0.05) => says("False", "Error", "the disk is full"),
        _ if sim.world.unlucky(0.1) => says("Unknown", "", ""),
        _ => {
            running.insert(key);
            let mut report = says("True", "", "");
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

fn says(status: &str, reason: &str, message: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}]})
}
