//! Ingests an agent's reports of its cluster and of its instances. Writes only what changed.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kernel::{Change, Key, Object, Refusal, Result, Timestamp};
use serde_json::Value;

use crate::Fleet;
use crate::decide::cluster::report;
use crate::decide::instance::{instance_change, transition};
use crate::decide::instance_report::{Report, Verdict, evaluate_report};
use crate::model::cluster::{self, Cluster};
use crate::model::instance::Instance;
use crate::model::kind::Kind;

/// Records an agent's report of its cluster. Refuses versions that cannot be used.
pub async fn report_cluster(fleet: &Fleet, kind: &Kind, id: &str, body: &Value) -> Result<()> {
    report::check(kind, body)?;
    fleet.touch_agent(id);
    let stale_after = Duration::from_secs(fleet.config.agent.lost_after_s / 3);
    let reported = |stored: Option<&Object>, now: Timestamp| {
        let stored = stored.filter(|object| object.deleted_at.is_none());
        let Some(object) = stored else { return Ok((None, ())) };
        Ok((report::change(object, kind, body, stale_after, now)?, ()))
    };
    fleet.edit(&cluster::key(id), reported).await
}

/// How often a report is evaluated again after a concurrent write.
const ATTEMPTS_MAX: usize = 5;

/// Ingests an agent's reports and returns a result for each.
pub async fn ingest_reports(
    fleet: &Fleet,
    kind: &Kind,
    cluster: &Cluster,
    reports: &serde_json::Map<String, Value>,
) -> Result<BTreeMap<String, &'static str>> {
    let names = fleet.ports.dns.is_some() && kind.file.dns.is_some();
    let mut results = BTreeMap::new();
    let mut pending = Vec::new();
    for (id, value) in reports {
        let report = Report::read(kind, value);
        let verdict = match fleet.index.get(kind.name(), id) {
            Some(row) => evaluate_report(&row.instance, kind, cluster, &report, names, ""),
            None => Verdict::Rejected("it does not exist"),
        };
        match verdict {
            Verdict::Unchanged => drop(results.insert(id.clone(), "unchanged")),
            Verdict::Rejected(why) => drop(results.insert(id.clone(), why)),
            Verdict::Changed { .. } => pending.push((id.clone(), report)),
        }
    }
    for _ in 0..ATTEMPTS_MAX {
        if pending.is_empty() {
            break;
        }
        pending = commit_reports(fleet, kind, cluster, pending, names, &mut results).await?;
    }
    results.extend(pending.into_iter().map(|(id, _)| (id, "concurrent update; retry")));
    Ok(results)
}

/// Commits the reports that change something. Returns those that met a concurrent write.
async fn commit_reports(
    fleet: &Fleet,
    kind: &Kind,
    cluster: &Cluster,
    pending: Vec<(String, Report)>,
    names: bool,
    results: &mut BTreeMap<String, &'static str>,
) -> Result<Vec<(String, Report)>> {
    let keys: Vec<Key> = pending.iter().map(|(id, _)| Key::new(kind.name(), id)).collect();
    let objects = fleet.store.get(&keys).await?;
    let objects: HashMap<&str, &Object> =
        objects.iter().map(|object| (object.key.id(), object)).collect();
    let now = fleet.ambient.now();
    let (mut changes, mut evaluated) = (Vec::new(), Vec::new());
    for (id, report) in pending {
        let object = objects.get(id.as_str()).copied();
        let Some(object) = object.filter(|object| object.deleted_at.is_none()) else {
            results.insert(id, "it does not exist");
            continue;
        };
        let instance = Instance::from_object(object)?;
        let fresh = fleet.ambient.id();
        match evaluate_report(&instance, kind, cluster, &report, names, &fresh) {
            Verdict::Unchanged => drop(results.insert(id, "unchanged")),
            Verdict::Rejected(why) => drop(results.insert(id, why)),
            Verdict::Changed { next, event, wake } => {
                let mut change: Change = match event {
                    Some(event) => transition(object, &next, event, now).0,
                    None => instance_change(object, &next, "reported", now),
                };
                if next.status.cluster_id.is_empty() {
                    let counter = instance.status.capacity_counter.clone();
                    change.depends_on = Some(Vec::new());
                    change.releases = instance.releases([counter]);
                }
                if wake {
                    change.wakes.push(instance.wake(now));
                }
                changes.push(change);
                evaluated.push((id, report));
            }
        }
    }
    let verdicts = fleet.store.commit_all(changes, now).await?;
    let mut stale = Vec::new();
    for ((id, report), verdict) in evaluated.into_iter().zip(verdicts) {
        match verdict {
            Ok(_) => drop(results.insert(id, "updated")),
            Err(Refusal::Stale { .. }) => stale.push((id, report)),
            Err(refusal) => {
                tracing::warn!(%id, %refusal, "writing an agent's report failed");
                results.insert(id, "it could not be written; retry");
            }
        }
    }
    Ok(stale)
}
