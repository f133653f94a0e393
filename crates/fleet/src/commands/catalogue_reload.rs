//! Replaces the catalogue by the content of its files: on this replica, or on request on all of
//! them. A request is a new generation of one object that every replica follows, and in whose status
//! each records what it loaded.

use std::time::Duration;

use kernel::change::{AuditDraft, EventDraft, Write};
use kernel::{Change, Error, Object, Result, Timestamp, files};
use tokio_util::sync::CancellationToken;

use super::{declared_clusters, local_cluster};
use crate::Fleet;
use crate::model::catalogue_load::{Load, Status, key};
use crate::model::cluster::{LOCAL_ID, Provider};
use crate::model::recheck::Recheck;

/// How long a request waits for the other replicas; those that take longer are named.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(5);
/// Before a failed report is written again.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the files, all or none, and reconciles the instances and clusters that they concern.
pub async fn reload(fleet: &Fleet) -> Result<()> {
    let files = fleet.config.catalogue_files();
    let next = files::blocking(move || files.read()).await?;
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

/// Has every replica read the files. An error of this one's files requests nothing. Returns what
/// each replica has loaded, and the generation of the request: older loads are those of replicas
/// that have not followed it yet.
pub async fn request(fleet: &Fleet, audit: AuditDraft) -> Result<(i64, Status)> {
    reload(fleet).await?;
    let generation = write(fleet, Some(audit), |object, status, now| {
        status.drop_gone(object.generation);
        object.generation += 1;
        object.observed = object.generation;
        let load = Load { generation: object.generation, at: now, error: String::new() };
        status.replicas.insert(fleet.replica.clone(), load);
    })
    .await?;
    let deadline = tokio::time::Instant::now() + REPLICAS_TIMEOUT;
    let mut events = fleet.store.wakeups().events();
    loop {
        events.borrow_and_update();
        let status = stored(fleet).await?;
        let all = status.replicas.values().all(|load| load.generation >= generation);
        if all || tokio::time::timeout_at(deadline, events.changed()).await.is_err() {
            return Ok((generation, status));
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
    let registered = write(fleet, None, |object, status, now| {
        if alone {
            status.replicas.clear();
        }
        let generation = if alone { object.generation } else { 0 };
        let load = Load { generation, at: now, error: String::new() };
        status.replicas.insert(fleet.replica.clone(), load);
    });
    registered.await.map(drop)
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
    let removed = write(fleet, None, |_, status, _| drop(status.replicas.remove(&fleet.replica)));
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
    let recorded = write(fleet, None, |_, status, now| {
        let load = Load { generation: requested, at: now, error: error.clone() };
        status.replicas.insert(fleet.replica.clone(), load);
    });
    recorded.await.map(drop)
}

/// Edits the object, which is created if there is none. Returns its generation.
async fn write(
    fleet: &Fleet,
    audit: Option<AuditDraft>,
    edit: impl Fn(&mut Object, &mut Status, Timestamp),
) -> Result<i64> {
    let edited = |stored: Option<&Object>, now: Timestamp| {
        let new = || Object::new(key(), "", "mainstay", "the fleet's catalogue", "loaded", now);
        let mut object = stored.cloned().unwrap_or_else(new);
        let mut status = if stored.is_some() { Status::of(&object)? } else { Status::default() };
        edit(&mut object, &mut status, now);
        status.write_to(&mut object, now);
        let generation = object.generation;
        let change = Change {
            audit: audit.clone(),
            event: Some(EventDraft::for_object(&object, "loaded")),
            write: Some(match stored {
                Some(_) => Write::Update(object),
                None => Write::Create(object),
            }),
            ..Change::default()
        };
        Ok((Some(change), generation))
    };
    fleet.edit(&key(), edited).await
}
