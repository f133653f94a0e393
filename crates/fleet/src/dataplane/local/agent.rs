//! The agent of the local data plane: turns the fleet's instances on this machine into processes, and
//! reports their states, without a network in between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use kernel::Result;
use serde_json::{Map, Value};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{ProcessSpec, Readiness, State, Supervisor};
use crate::Fleet;
use crate::commands::agent_report::ingest_reports;
use crate::commands::local_cluster::register;
use crate::dataplane::ready_condition;
use crate::model::cluster::{Cluster, LOCAL_ID};
use crate::model::instance::{self, Instance};
use crate::model::kind::{Kind, Local};
use crate::store::index::FeedKey;

/// Before a failed sync is retried.
const PAUSE: Duration = Duration::from_secs(1);

pub struct LocalAgent {
    fleet: Arc<Fleet>,
    supervisor: Supervisor,
}

/// Makes this machine a data plane until `stop`.
pub async fn start(
    fleet: &Arc<Fleet>,
    dir: PathBuf,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<()> {
    register(fleet).await?;
    let supervisor =
        Supervisor::open(dir, fleet.ambient.clone(), tasks.clone(), stop.clone()).await?;
    let agent = LocalAgent { fleet: fleet.clone(), supervisor };
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(agent.run()).await;
    });
    Ok(())
}

impl LocalAgent {
    /// Syncs whenever the fleet or a process changes.
    async fn run(self) {
        let mut processes = self.supervisor.changes();
        let mut catalogue = self.fleet.catalogue_changes();
        let mut synced: BTreeMap<String, i64> = BTreeMap::new();
        let mut first = true;
        let mut changed: BTreeSet<String> = BTreeSet::new();
        loop {
            let kinds: Vec<Arc<Kind>> = self.fleet.catalogue().kinds.values().cloned().collect();
            let mut changes = Vec::new();
            let mut failed = false;
            for kind in kinds.iter().filter(|kind| kind.file.local.is_some()) {
                let mut change = self.fleet.index.changes(&FeedKey::agent(kind.name(), LOCAL_ID));
                change.mark_unchanged();
                changes.push(change);
                let after = synced.get(kind.name()).copied();
                match self.sync_kind(kind, after, &changed).await {
                    Ok(seq) => drop(synced.insert(kind.name().into(), seq)),
                    Err(error) => {
                        tracing::warn!(%error, kind = kind.name(), "syncing the local data plane failed; will retry");
                        failed = true;
                    }
                }
            }
            if first {
                first = failed;
                self.stop_orphans(&kinds).await;
            }
            if !failed {
                changed.clear();
            }
            let notified = select_all(changes.iter_mut().map(|change| Box::pin(change.changed())));
            tokio::select! {
                _ = notified => {}
                _ = catalogue.changed() => {}
                id = processes.recv() => match id {
                    Ok(id) => drop(changed.insert(id)),
                    Err(RecvError::Lagged(_)) => changed.extend(self.supervisor.ids()),
                    Err(RecvError::Closed) => return,
                },
                () = tokio::time::sleep(PAUSE), if failed => {}
            }
            while let Ok(id) = processes.try_recv() {
                changed.insert(id);
            }
        }
    }

    /// Applies what changed for a kind, and reports the results. Returns the sequence number it reached.
    async fn sync_kind(
        &self,
        kind: &Kind,
        after: Option<i64>,
        changed: &BTreeSet<String>,
    ) -> Result<i64> {
        let delta = self.fleet.index.delta(&FeedKey::agent(kind.name(), LOCAL_ID), after);
        let mut reports = Map::new();
        for row in &delta.changed {
            let report = self.reconcile(kind, &row.instance).await;
            reports.extend(report.map(|report| (row.instance.id.clone(), report)));
        }
        for id in changed {
            if !reports.contains_key(id)
                && let Some(row) = self.fleet.index.get(kind.name(), id)
            {
                let report = self.reconcile(kind, &row.instance).await;
                reports.extend(report.map(|report| (id.clone(), report)));
            }
        }
        if !reports.is_empty()
            && let Some(cluster) = self.cluster()
        {
            ingest_reports(&self.fleet, kind, &cluster, &reports).await?;
        }
        Ok(delta.seq)
    }

    fn cluster(&self) -> Option<Arc<Cluster>> {
        self.fleet.index.cluster(LOCAL_ID)
    }

    /// Reconciles one instance and returns its report.
    async fn reconcile(&self, kind: &Kind, instance: &Instance) -> Option<Value> {
        let visible = instance.phase.is_visible_to_agent() && instance.status.is_on_data_plane();
        if instance.status.cluster_id != LOCAL_ID || !visible {
            return None;
        }
        let local = kind.file.local.as_ref()?;
        let done = match instance.phase {
            instance::Phase::Deprovision => match self.supervisor.remove(&instance.id).await {
                Ok(()) => return Some(ready_condition("False", "Deleted", "")),
                failed => failed,
            },
            instance::Phase::Suspending | instance::Phase::Suspended => {
                match self.supervisor.suspend(&instance.id).await {
                    Ok(()) => return Some(ready_condition("False", "Suspended", "")),
                    failed => failed,
                }
            }
            _ => self.supervisor.run(process_spec(&self.fleet, kind, local, instance)).await,
        };
        if let Err(error) = done {
            return Some(ready_condition("False", "Error", &error.to_string()));
        }
        Some(match self.supervisor.state(&instance.id) {
            State::Starting => ready_condition("False", "Installing", ""),
            State::Failed { reason, restarts } => ready_condition(
                "False",
                "Error",
                &format!("{reason} (started again {restarts} times)"),
            ),
            State::Gone => ready_condition("False", "Installing", "it was suspended"),
            State::Ready { port, facts } => ready(kind, local, port, &facts),
        })
    }

    /// Stops processes that belong to no instance.
    async fn stop_orphans(&self, kinds: &[Arc<Kind>]) {
        for id in self.supervisor.ids() {
            let known = kinds.iter().any(|kind| {
                let row = self.fleet.index.get(kind.name(), &id);
                row.is_some_and(|row| row.instance.status.cluster_id == LOCAL_ID)
            });
            if !known && let Err(error) = self.supervisor.remove(&id).await {
                tracing::warn!(%id, %error, "could not stop an orphaned process");
            }
        }
    }
}

fn process_spec(fleet: &Fleet, kind: &Kind, local: &Local, instance: &Instance) -> ProcessSpec {
    let scope = fleet.scope(kind, instance, None);
    let fill = |text: &String| kind.file.fill(text, &scope);
    let ready = match (&local.ready.http, &local.ready.line) {
        (Some(path), _) => Readiness::Http { path: path.clone() },
        (None, Some(text)) => Readiness::Line { text: text.clone() },
        (None, None) => Readiness::Tcp,
    };
    ProcessSpec {
        id: instance.id.clone(),
        command: local.command.iter().map(fill).collect(),
        env: local.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
        ready,
        stop_s: local.stop_s,
        start_s: local.start_s,
    }
}

fn ready(kind: &Kind, local: &Local, port: u16, facts: &BTreeMap<String, String>) -> Value {
    let message = facts.get("note").map(String::as_str).unwrap_or_default();
    let mut report = ready_condition("True", "", message);
    report["address"] = local.endpoint.replace("${port}", &port.to_string()).into();
    let version = facts.get("version").map_or("local", String::as_str);
    if let Some(versions) = &kind.file.versions {
        let mut reported = Map::new();
        for component in versions.components.keys() {
            let version = if component == kind.name() { version } else { "local" };
            reported.insert(component.clone(), version.into());
        }
        let flavour = facts.get("flavour").map_or("local", String::as_str);
        reported.insert(versions.operator.clone(), flavour.into());
        report["versions"] = Value::Object(reported);
    }
    report
}
