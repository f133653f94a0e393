//! Invariants: those that always hold, and those that hold after recovery.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet::model::instance::{self, Instance, Phase};
use fleet::model::sso::{agent_client_id, canary_client_id};
use testkit::memory::Tables;
use testkit::sim::Broken;

use super::client::Deletion;
use super::{CLUSTER_LIMIT, CLUSTERS, QUOTA, Sim};

macro_rules! hold {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(Broken(format!($($text)*)));
        }
    };
}

/// Checks that no limit is ever exceeded and no name is ever used twice.
pub fn always(tables: &Tables) -> Result<(), Broken> {
    for (name, counter) in &tables.counters {
        let limit = match name.split('/').nth(1) {
            Some("name") => 1,
            Some("capacity") => CLUSTER_LIMIT,
            Some("quota") => QUOTA,
            _ => continue,
        };
        hold!((0..=limit).contains(&counter.used), "{name} is at {} of {limit}", counter.used);
    }
    Ok(())
}

fn instances(sim: &Sim) -> Vec<(Instance, bool)> {
    let tables = sim.world.memory.tables();
    let objects = tables.objects.values().map(|(_, object)| object);
    let kafkas = objects.filter(|object| object.key.kind() == "kafka");
    kafkas
        .map(|object| (Instance::from_object(object).unwrap(), object.deleted_at.is_some()))
        .collect()
}

/// Waits until every instance is ready, failed or deleted.
pub async fn settled(sim: &Sim) {
    loop {
        let at_end = |(instance, gone): &(Instance, bool)| {
            *gone || matches!(instance.phase, Phase::Ready | Phase::Failed)
        };
        if instances(sim).iter().all(at_end) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

/// Checks all invariants. Returns the number of instances.
pub fn all(sim: &Sim, settled: bool) -> Result<usize, Broken> {
    let tables = sim.world.memory.tables();
    sim.world.broken.lock().take().map_or(Ok(()), Err)?;
    let all = instances(sim);
    let phases: Vec<String> = all
        .iter()
        .filter(|(_, gone)| !gone)
        .map(|(i, _)| {
            format!(
                "{} {} on {:?}: {}",
                i.id,
                i.phase.label(),
                i.status.cluster_id,
                i.status.waiting_for
            )
        })
        .collect();
    let queue: Vec<String> = tables
        .queue
        .values()
        .map(|row| format!("{} {:?} {}", row.key, row.state, row.reason))
        .collect();
    hold!(settled, "it never settled: {phases:?} {queue:?}");

    for (id, deletion) in sim.ledger.created.lock().iter() {
        let found = all.iter().find(|(instance, _)| instance.id == *id);
        hold!(found.is_some(), "{id} was acknowledged and does not exist");
        let (instance, gone) = found.unwrap();
        let label = instance.phase.label();
        hold!(
            *deletion != Deletion::Acknowledged || *gone,
            "{id} should be deleted and is {label}"
        );
        hold!(*deletion != Deletion::None || !gone, "{id} is deleted although nobody requested it");
    }
    let live: Vec<&Instance> = all.iter().filter(|(_, gone)| !gone).map(|(i, _)| i).collect();
    for instance in &live {
        let id = &instance.id;
        match instance.phase {
            Phase::Ready => {
                let key = (instance.status.cluster_id.clone(), id.clone());
                hold!(sim.outside.running.lock().contains(&key), "{id} is ready and does not run");
            }
            Phase::Failed => {
                hold!(!instance.status.failed_reason.is_empty(), "{id} failed without a reason");
            }
            other => hold!(false, "{id} ended as {}", other.label()),
        }
    }
    outside(sim, &live)?;
    counters(&tables, &live)?;
    let hosts: BTreeSet<&str> =
        live.iter().map(|i| i.status.host.as_str()).filter(|h| !h.is_empty()).collect();
    let with_host = live.iter().filter(|i| !i.status.host.is_empty()).count();
    hold!(hosts.len() == with_host, "two instances have one host");
    Ok(all.len())
}

/// Checks that exactly what belongs to live instances exists outside.
fn outside(sim: &Sim, live: &[&Instance]) -> Result<(), Broken> {
    let clients = sim.outside.clients.lock();
    for id in clients.keys() {
        let of_cluster = CLUSTERS.iter().any(|cluster| agent_client_id(cluster) == *id);
        let known = of_cluster || live.iter().any(|instance| canary_client_id(&instance.id) == *id);
        hold!(known, "the client {id} is an orphan");
    }
    for instance in live.iter().filter(|instance| instance.phase == Phase::Ready) {
        hold!(
            clients.contains_key(&canary_client_id(&instance.id)),
            "{} has no client",
            instance.id
        );
    }
    let records = sim.outside.records.lock();
    for name in records.keys() {
        let owner =
            live.iter().find(|i| name.ends_with(&i.status.host) && !i.status.host.is_empty());
        hold!(owner.is_some(), "the record {name} is an orphan");
    }
    for instance in live.iter().filter(|instance| instance.phase == Phase::Ready) {
        for route in instance.status.routes.iter().flatten() {
            hold!(
                records.get(&route.domain) == Some(&route.router),
                "{} does not have the target {}",
                route.domain,
                route.router
            );
        }
    }
    for (cluster, id) in sim.outside.running.lock().iter() {
        let owner = live.iter().find(|instance| instance.id == *id);
        hold!(
            owner.is_some_and(|owner| owner.status.cluster_id == *cluster),
            "{id} runs on {cluster} and should not"
        );
    }
    Ok(())
}

/// Checks that the counters hold exactly what live instances hold.
fn counters(tables: &Tables, live: &[&Instance]) -> Result<(), Broken> {
    for cluster in CLUSTERS {
        let name = format!("fleet/capacity/{cluster}");
        let used = tables.counters.get(&name).map_or(0, |counter| counter.used);
        let held = live.iter().filter(|i| i.status.cluster_id == cluster);
        let held: i64 = held.map(|i| i.spec.units).sum();
        hold!(used == held, "{name} is at {used}, and instances hold {held}");
    }
    for (name, counter) in &tables.counters {
        if name.starts_with("fleet/quota/") {
            let held = live.iter().filter(|i| i.spec.quota_counter == *name);
            let held: i64 = held.map(|i| i.spec.units).sum();
            hold!(counter.used == held, "{name} is at {}, and instances hold {held}", counter.used);
        }
        if name.starts_with("fleet/name/") {
            let held = live.iter().filter(|i| instance::counters(i).contains(name)).count();
            hold!(
                usize::try_from(counter.used) == Ok(held),
                "{name} is at {}, held by {held}",
                counter.used
            );
        }
    }
    Ok(())
}
