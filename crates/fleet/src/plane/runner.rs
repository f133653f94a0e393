//! The agent of the local data plane: what the fleet wants of this machine becomes processes, and
//! what becomes of them is reported, without a network in between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use kernel::change::{EventDraft, Wake, Write};
use kernel::{Change, Json, Object, Result, Timestamp};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::local::{Ready, State, Supervisor, Wanted};
use crate::Fleet;
use crate::api::agent::take_in;
use crate::model::cluster::{self, Cluster, Operator, Provider, Seen, Spec, Status};
use crate::model::instance::{self, Instance};
use crate::model::kind::{Kind, Local};

/// The cluster that this machine is.
pub const CLUSTER: &str = "local";
/// After something could not be done.
const PAUSE: Duration = Duration::from_secs(1);

pub struct Runner {
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
    let runner = Runner { fleet: fleet.clone(), supervisor };
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(runner.run()).await;
    });
    Ok(())
}

/// The cluster's object, as this process would have it.
pub(crate) async fn register(fleet: &Fleet) -> Result<()> {
    let kinds = fleet.rules();
    let operators = kinds.kinds.values().filter_map(|kind| {
        let versions = kind.file.versions.as_ref()?;
        let components = versions.components.keys();
        let components = components.map(|component| (component.clone(), vec!["local".to_owned()]));
        let operator =
            Operator { version: "local".into(), ready: true, components: components.collect() };
        Some((kind.name().to_owned(), vec![operator]))
    });
    let now = fleet.ambient.now();
    let spec = Spec {
        provider: Provider::Local,
        multi_az: true,
        schedulable: true,
        limit: Some(fleet.config.local.units_max),
        kinds: kinds
            .kinds
            .values()
            .filter(|k| k.file.local.is_some())
            .map(|k| k.name().into())
            .collect(),
        ..Spec::default()
    };
    let seen = Seen { since: now, operators: operators.collect(), ..Seen::default() };
    let registered = |there: Option<&Object>, now: Timestamp| {
        let mut object = match there {
            Some(there) => there.clone(),
            None => Object::new(cluster::key(CLUSTER), "", "mainstay", "this machine", "", now),
        };
        let before = object.clone();
        object.phase = Status::Ready.label().into();
        object.spec = Json::encode(&spec);
        let known = before.status.parse::<Seen>().unwrap_or_default();
        let since = if there.is_some() { known.since } else { now };
        object.status = Json::encode(&Seen { since, ..seen.clone() });
        object.deleted_at = None;
        if there.is_some() && object == before {
            return Ok((None, ()));
        }
        object.updated_at = now;
        let change = Change {
            event: Some(EventDraft::of(&object, Status::Ready.label())),
            write: Some(match there {
                Some(_) => Write::Update(object),
                None => Write::Create(object),
            }),
            wakes: vec![Wake::new(cluster::key(CLUSTER), "", now)],
            ..Change::default()
        };
        Ok((Some(change), ()))
    };
    let key = cluster::key(CLUSTER);
    kernel::store::edit(fleet.store.as_ref(), &fleet.ambient, &key, registered).await
}

impl Runner {
    /// Whenever the fleet or a process changed, makes both agree.
    async fn run(self) {
        let mut processes = self.supervisor.changes();
        let mut rules = self.fleet.rules_bell();
        let mut told: BTreeMap<String, i64> = BTreeMap::new();
        let mut first = true;
        let mut changed: BTreeSet<String> = BTreeSet::new();
        loop {
            let kinds: Vec<Arc<Kind>> = self.fleet.rules().kinds.values().cloned().collect();
            let mut bells = Vec::new();
            let mut failed = false;
            for kind in kinds.iter().filter(|kind| kind.file.local.is_some()) {
                let mut bell = self.fleet.index.agent_bell(kind.name(), CLUSTER);
                bell.mark_unchanged();
                bells.push(bell);
                let after = told.get(kind.name()).copied();
                match self.agree(kind, after, &changed).await {
                    Ok(seq) => drop(told.insert(kind.name().into(), seq)),
                    Err(error) => {
                        tracing::warn!(%error, kind = kind.name(), "the local data plane is behind");
                        failed = true;
                    }
                }
            }
            if first {
                first = failed;
                self.forget_strangers(&kinds).await;
            }
            if !failed {
                changed.clear();
            }
            let rung = select_all(bells.iter_mut().map(|bell| Box::pin(bell.changed())));
            tokio::select! {
                _ = rung => {}
                _ = rules.changed() => {}
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

    /// Does what changed for a kind, and says what became of it. Returns how far it got.
    async fn agree(
        &self,
        kind: &Kind,
        after: Option<i64>,
        changed: &BTreeSet<String>,
    ) -> Result<i64> {
        let delta = self.fleet.index.for_agent(kind.name(), CLUSTER, after);
        let mut reports = Map::new();
        for row in &delta.changed {
            let report = self.carry_out(kind, &row.instance).await;
            reports.extend(report.map(|report| (row.instance.id.clone(), report)));
        }
        for id in changed {
            if !reports.contains_key(id)
                && let Some(row) = self.fleet.index.get(kind.name(), id)
            {
                let report = self.carry_out(kind, &row.instance).await;
                reports.extend(report.map(|report| (id.clone(), report)));
            }
        }
        if !reports.is_empty()
            && let Some(cluster) = self.cluster()
        {
            take_in(&self.fleet, kind, &cluster, &reports).await?;
        }
        Ok(delta.seq)
    }

    fn cluster(&self) -> Option<Arc<Cluster>> {
        self.fleet.index.cluster(CLUSTER)
    }

    /// Makes one instance so, as far as that goes at once, and says how it is.
    async fn carry_out(&self, kind: &Kind, instance: &Instance) -> Option<Value> {
        let told = instance.status.is_visible_to_agent() && instance.is_on_data_plane();
        if instance.seen.cluster_id != CLUSTER || !told {
            return None;
        }
        let local = kind.file.local.as_ref()?;
        let done = match instance.status {
            instance::Status::Deprovision => match self.supervisor.remove(&instance.id).await {
                Ok(()) => return Some(condition("False", "Deleted", "")),
                failed => failed,
            },
            instance::Status::Suspending | instance::Status::Suspended => {
                match self.supervisor.suspend(&instance.id).await {
                    Ok(()) => return Some(condition("False", "Suspended", "")),
                    failed => failed,
                }
            }
            _ => self.supervisor.run(wanted(&self.fleet, kind, local, instance)).await,
        };
        if let Err(error) = done {
            return Some(condition("False", "Error", &error.to_string()));
        }
        Some(match self.supervisor.state(&instance.id) {
            State::Starting => condition("False", "Installing", ""),
            State::Failed { reason, restarts } => {
                condition("False", "Error", &format!("{reason} (started again {restarts} times)"))
            }
            State::Gone => condition("False", "Installing", "it was suspended"),
            State::Ready { port, facts } => ready(kind, local, port, &facts),
        })
    }

    /// Ends what runs here and belongs to no instance any more.
    async fn forget_strangers(&self, kinds: &[Arc<Kind>]) {
        for id in self.supervisor.ids() {
            let known = kinds.iter().any(|kind| {
                let row = self.fleet.index.get(kind.name(), &id);
                row.is_some_and(|row| row.instance.seen.cluster_id == CLUSTER)
            });
            if !known && let Err(error) = self.supervisor.remove(&id).await {
                tracing::warn!(%id, %error, "a process that belongs to nothing could not be ended");
            }
        }
    }
}

fn wanted(fleet: &Fleet, kind: &Kind, local: &Local, instance: &Instance) -> Wanted {
    let view = fleet.view(kind, instance, None);
    let fill = |text: &String| kind.file.fill(text, &view);
    let ready = match (&local.ready.http, &local.ready.line) {
        (Some(path), _) => Ready::Http { path: path.clone() },
        (None, Some(text)) => Ready::Line { text: text.clone() },
        (None, None) => Ready::Tcp,
    };
    Wanted {
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
    let mut report = condition("True", "", message);
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

fn condition(status: &str, reason: &str, message: &str) -> Value {
    let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": message});
    json!({ "conditions": [ready] })
}
