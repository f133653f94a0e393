//! Reads and writes of sinks and their cursors.

use std::collections::BTreeMap;

use kernel::change::{CursorMove, LeaseFence};
use kernel::log::EventFilter;
use kernel::store::{commit, edit};
use kernel::{Ambient, Change, Draft, Json, Key, ObjectQuery, Result, Store, Timestamp};

use crate::model::{Cursor, KIND, Phase, Position, Sink, Spec, Status, cursor_name};

/// The position of a cursor that holds nothing back: its sink is gone.
pub const RETIRED: i64 = i64::MAX;
/// Sinks per read.
const PAGE: usize = 500;

pub fn key(id: &str) -> Key {
    Key::new(KIND, id)
}

/// The position of a sink, unless it has none.
pub async fn cursor(store: &dyn Store, id: &str) -> Result<Option<(Position, Cursor)>> {
    let found = store.cursor(&cursor_name(id)).await?.filter(|cursor| cursor.seq != RETIRED);
    Ok(found.map(|cursor| decode(&cursor)))
}

/// The positions of all sinks, by id; of those that are gone too.
pub async fn cursors(store: &dyn Store) -> Result<BTreeMap<String, (Position, Cursor)>> {
    let all = store.cursors().await?;
    let of_sinks = all.iter().filter_map(|cursor| {
        let id = cursor.name.strip_prefix(KIND)?.strip_prefix('/')?;
        Some((id.to_owned(), decode(cursor)))
    });
    Ok(of_sinks.collect())
}

fn decode(cursor: &CursorMove) -> (Position, Cursor) {
    let detail: Cursor = cursor.detail.parse().unwrap_or_default();
    (Position { epoch: detail.epoch, seq: cursor.seq, at: None }, detail)
}

/// Where a sink begins that has none: with the next event, and a user's webhook with the first after
/// it was created, however long after that its pump starts.
pub async fn first_position(store: &dyn Store, id: &str) -> Result<i64> {
    let key = key(id);
    let newest = store.newest_event().await?;
    if store.object(&key).await?.is_none_or(|object| object.org.is_empty()) {
        return Ok(newest);
    }
    let filter = EventFilter { subject: Some(key), ..EventFilter::default() };
    let created = store.events(0, &filter, 1).await?;
    Ok(created.first().map_or(newest, |event| event.seq))
}

/// Moves the position of a sink, as the holder of the lease.
pub async fn save(
    store: &dyn Store,
    id: &str,
    lease: LeaseFence,
    seq: i64,
    detail: &Cursor,
    now: Timestamp,
) -> Result<()> {
    let (name, fence) = (cursor_name(id), lease.fence);
    let cursor = CursorMove { name, seq, detail: Json::encode(detail), fence };
    let change = Change { cursor: Some(cursor), leases: vec![lease], ..Change::default() };
    commit(store, change, now).await.map(drop)
}

/// All sinks that exist, by id.
pub async fn sinks(store: &dyn Store) -> Result<Vec<Sink>> {
    let mut query = ObjectQuery { kind: Some(KIND.into()), limit: PAGE, ..ObjectQuery::default() };
    let mut sinks = Vec::new();
    loop {
        let page = store.find(&query).await?;
        for object in &page.objects {
            sinks.push(Sink::from_object(object)?);
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(sinks),
        }
    }
}

/// Writes what the configuration says of a sink, if it is new.
pub async fn declare(
    store: &dyn Store,
    ambient: &Ambient,
    id: &str,
    lease: LeaseFence,
    declared: &Spec,
) -> Result<Spec> {
    edit(store, ambient, &key(id), |there, now| {
        let running = Status { since: Some(now), ..Status::default() };
        let Some(object) = there else {
            let draft = Draft::<Spec>::new(key(id), "", "", id, now).phase(&Phase::Running);
            let write = draft.spec(declared).status(&running).create("created");
            let change = Change { leases: vec![lease.clone()], ..write.into() };
            return Ok((Some(change), declared.clone()));
        };
        let sink = Sink::from_object(object)?;
        let Spec { epoch, from, resumes, discard, .. } = sink.spec;
        let spec = Spec { epoch, from, resumes, discard, ..declared.clone() };
        let mut draft = Draft::<Spec>::of(object).spec(&spec);
        if matches!(sink.phase, Phase::Off | Phase::Deleted) {
            draft = draft.phase(&Phase::Running).status(&running);
        }
        let changed = draft.is_changed() || object.deleted_at.is_some();
        let change = changed
            .then(|| Change { leases: vec![lease.clone()], ..draft.respec("updated", now).into() });
        Ok((change, spec))
    })
    .await
}

/// Writes how a sink is, as the holder of the lease.
pub async fn report(
    store: &dyn Store,
    ambient: &Ambient,
    id: &str,
    lease: LeaseFence,
    phase: Phase,
    reason: &str,
) -> Result<()> {
    edit(store, ambient, &key(id), |there, now| {
        let Some(object) = there.filter(|object| object.deleted_at.is_none()) else {
            return Ok((None, ()));
        };
        let sink = Sink::from_object(object)?;
        if sink.phase == phase && sink.status.reason == reason {
            return Ok((None, ()));
        }
        let since = if sink.phase == phase { sink.status.since } else { Some(now) };
        let status = Status { since, reason: reason.into() };
        let draft = Draft::<Spec>::of(object).phase(&phase).status(&status);
        let write = draft.report(phase.label(), now);
        Ok((Some(Change { leases: vec![lease.clone()], ..write.into() }), ()))
    })
    .await
}
