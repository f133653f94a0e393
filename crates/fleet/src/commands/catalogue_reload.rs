//! Replaces the catalogue by the content of its files: on this replica, or on request on all of
//! them. A request is a new generation of one object that every replica follows, and in whose status
//! each records what it loaded.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::Write;
use kernel::command::{AnyCommand, AuditFields, CommandContext, Decided};
use kernel::identity::Action;
use kernel::{Change, Draft, Error, Json, Object, Result, Timestamp};
use tokio_util::sync::CancellationToken;

use super::{declared_clusters, local_cluster};
use crate::Fleet;
use crate::model::catalogue_load::{Load, Phase, Spec, Status, key};
use crate::model::cluster::{LOCAL_ID, Provider};
use crate::model::recheck::Recheck;

/// How long a request waits for the other replicas; those that take longer are named.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(5);
/// Before a failed report is written again.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the files, all or none, and reconciles the instances and clusters that they concern.
pub async fn reload(fleet: &Fleet) -> Result<()> {
    let next = fleet.config.catalogue_files().load(&fleet.kinds).await?;
    let now = fleet.ambient.now();
    let wakes: Vec<_> =
        Recheck::between(&fleet.catalogue(), &next).iter().map(|it| it.wake(now)).collect();
    fleet.set_catalogue(next);
    // The local cluster supports new kinds at once.
    if fleet.index.cluster(LOCAL_ID).is_some_and(|c| c.spec.provider == Provider::Local) {
        local_cluster::register(fleet).await?;
    }
    declared_clusters::sync(fleet).await?;
    if !wakes.is_empty() {
        fleet.commit(Change { wakes, ..Change::default() }, now).await?;
    }
    Ok(())
}

/// The command that has every replica read the files. An error of this one's files requests nothing.
pub struct ReloadCommand(pub Arc<Fleet>);

pub const RELOAD: &str = "fleet.reload";

#[async_trait]
impl AnyCommand for ReloadCommand {
    fn name(&self) -> &str {
        RELOAD
    }

    fn action(&self) -> Action {
        Action::AdminFull
    }

    async fn decide(&self, cx: &CommandContext<'_>, _: &Json) -> Result<Decided<Json>> {
        self.0.config.catalogue_files().load(&self.0.kinds).await?;
        let stored = cx.app.store.object(&key()).await?;
        let write = edited(stored.as_deref(), cx.now, |spec, status, (generation, _)| {
            status.drop_gone(generation);
            spec.requests += 1;
        })?;
        let generation = write.object.generation;
        let audit = AuditFields { target: "fleet".into(), ..AuditFields::default() };
        let reply = Json::encode(&serde_json::json!({ "generation": generation }));
        Ok(Decided::new(200, reply, audit).change(write.into()))
    }
}

/// Waits until all replicas have followed a request, for a short time. Returns what each has loaded:
/// older loads are those of replicas that have not followed it yet.
pub async fn followed(fleet: &Fleet, generation: i64) -> Result<Status> {
    let deadline = tokio::time::Instant::now() + REPLICAS_TIMEOUT;
    let events = fleet.store.wakeups().events();
    loop {
        let seen = events.get();
        let status = stored(fleet).await?;
        let all = status.replicas.values().all(|load| load.generation >= generation);
        if all || tokio::time::timeout_at(deadline, events.above(seen)).await.is_err() {
            return Ok(status);
        }
    }
}

async fn stored(fleet: &Fleet) -> Result<Status> {
    let object = fleet.store.object(&key()).await?;
    Status::of(&*object.ok_or_else(|| Error::NotFound(key().to_string()))?)
}

/// Adds this replica to those that a request waits for. `alone`: no other process uses the store, so
/// all other records are of processes that have ended. Else a request may have come since the files
/// were read, so this replica counts as one that has followed none.
pub async fn register(fleet: &Fleet, alone: bool) -> Result<()> {
    let registered = edit(fleet, |_, status, (generation, now)| {
        if alone {
            status.replicas.clear();
        }
        let generation = if alone { generation } else { 0 };
        let load = Load { generation, at: now, error: String::new() };
        status.replicas.insert(fleet.replica.clone(), load);
    });
    registered.await
}

/// Follows the requests until `stop`, and removes the record of this replica then.
pub async fn follow_requests(fleet: &Fleet, stop: &CancellationToken) {
    let mut requests = fleet.index.catalogue_requests();
    requests.mark_changed();
    while stop.run_until_cancelled(requests.changed()).await.is_some_and(|it| it.is_ok()) {
        let requested = *requests.borrow_and_update();
        if stop.run_until_cancelled(follow(fleet, requested)).await.is_none() {
            break;
        }
    }
    let removed = edit(fleet, |_, status, _| drop(status.replicas.remove(&fleet.replica)));
    if let Err(error) = removed.await {
        tracing::debug!(%error, "removing the record of this replica failed");
    }
}

async fn follow(fleet: &Fleet, requested: i64) {
    loop {
        match follow_once(fleet, requested).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "recording what was loaded failed; will retry");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn follow_once(fleet: &Fleet, requested: i64) -> Result<()> {
    let mine = stored(fleet).await?.replicas.remove(&fleet.replica);
    if mine.is_some_and(|load| load.generation >= requested) {
        return Ok(());
    }
    let error = match reload(fleet).await {
        Ok(()) => {
            tracing::info!(requested, "reloaded the catalogue");
            String::new()
        }
        Err(error) => {
            let error = error.with_causes();
            tracing::error!(error, "reloading the catalogue failed; keeping the previous one");
            error
        }
    };
    let recorded = edit(fleet, |_, status, (_, now)| {
        let load = Load { generation: requested, at: now, error: error.clone() };
        status.replicas.insert(fleet.replica.clone(), load);
    });
    recorded.await
}

/// Edits the object, which is created if there is none.
async fn edit(
    fleet: &Fleet,
    edit: impl Fn(&mut Spec, &mut Status, (i64, Timestamp)),
) -> Result<()> {
    let change = |stored: Option<&Object>, now: Timestamp| {
        Ok((Some(edited(stored, now, &edit)?.into()), ()))
    };
    fleet.edit(&key(), change).await
}

/// `edit` is given the generation before, and the time.
fn edited(
    stored: Option<&Object>,
    now: Timestamp,
    edit: impl Fn(&mut Spec, &mut Status, (i64, Timestamp)),
) -> Result<Write> {
    let (mut spec, mut status) = match stored {
        Some(object) => (object.spec.parse()?, Status::of(object)?),
        None => (Spec::default(), Status::default()),
    };
    edit(&mut spec, &mut status, (stored.map_or(1, |object| object.generation), now));
    let new = || Draft::new(key(), "", "mainstay", "the fleet's catalogue", now);
    let draft = stored.map_or_else(new, Draft::of);
    Ok(draft.phase(&Phase::Loaded).spec(&spec).status(&status).respec("loaded", now))
}
