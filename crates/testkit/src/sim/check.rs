//! What must hold: at every moment, and when everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use kernel::log::{AuditCheck, Event};
use kernel::queue::{QueueRow, State};
use kernel::{Key, Object};

use super::client::Ledger;
use super::{ORGS, QUOTA, Report, World};
use crate::Memory;
use crate::memory::Tables;
use crate::widgets::model::{KIND, Status, spec};

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

macro_rules! hold {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(Broken(format!($($text)*)));
        }
    };
}

/// After every commit.
pub fn always(tables: &Tables) -> Result<(), Broken> {
    for (name, counter) in &tables.counters {
        let limit = match name.split('/').next() {
            Some("widgets") => QUOTA,
            Some("schedules") => 2,
            _ => 1,
        };
        hold!((0..=limit).contains(&counter.used), "{name} is at {} of {limit}", counter.used);
    }
    Ok(())
}

/// Returns once nothing is left to do.
pub async fn at_rest(world: &World) {
    loop {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let waits =
            |row: &QueueRow| row.state == State::Waiting && row.attempt == 0 && row.note.is_empty();
        if world.memory.look(|tables| tables.queue.values().all(waits)) {
            return;
        }
    }
}

pub fn all(world: &World, ledger: &Ledger, at_rest: bool) -> Result<Report, Broken> {
    world.broken.lock().take().map_or(Ok(()), Err)?;
    let tables = world.memory.tables();
    let stuck: Vec<_> = tables
        .queue
        .values()
        .map(|row| format!("{} {:?} {}", row.key, row.state, row.reason))
        .collect();
    hold!(at_rest, "it never came to rest: {stuck:?}");
    acknowledged(&tables, ledger)?;
    ended(world, &tables)?;
    allotments(&tables)?;
    events(&tables)?;
    audit(&tables)?;
    effects(world, &tables)?;
    super::schedules::check(&tables)?;
    Ok(Report {
        objects: tables.objects.len(),
        events: tables.events.len(),
        crashes: 0,
        digest: digest(&tables),
    })
}

/// Of the whole history.
pub fn digest(tables: &Tables) -> u64 {
    let mut digest = DefaultHasher::new();
    for event in &tables.events {
        (event.seq, &event.kind, event.subject.as_str(), event.at, event.data.text())
            .hash(&mut digest);
    }
    digest.finish()
}

/// The logs say everything: replayed into an empty store, they make equal tables.
pub async fn replayed(world: &World) -> Result<(), Broken> {
    let copy = Memory::default();
    let replayed = crate::replay::replay(&*world.memory, &copy).await;
    replayed.map_err(|error| Broken(format!("the logs cannot be replayed: {error}")))?;
    let (ours, theirs) = (world.memory.tables(), copy.tables());
    let objects = |tables: &Tables| -> Vec<Object> {
        tables.objects.values().map(|(_, object)| object.clone()).collect()
    };
    hold!(objects(&ours) == objects(&theirs), "replayed objects differ");
    hold!(ours.edges == theirs.edges, "replayed edges differ");
    hold!(ours.counters == theirs.counters, "replayed counters differ");
    hold!(ours.holds == theirs.holds, "replayed holds differ");
    hold!(ours.commands == theirs.commands, "replayed commands differ");
    hold!(ours.blobs == theirs.blobs, "replayed blobs differ");
    hold!(ours.events == theirs.events, "replayed events differ");
    hold!(ours.head == theirs.head, "the replayed audit log ends otherwise");
    Ok(())
}

/// Nothing that was acknowledged is lost, and nothing was carried out twice.
fn acknowledged(tables: &Tables, ledger: &Ledger) -> Result<(), Broken> {
    let created = ledger.created.lock();
    let keys: BTreeSet<&Key> = created.values().collect();
    hold!(keys.len() == created.len(), "two commands made one object");
    for (command, key) in created.iter() {
        hold!(
            tables.objects.contains_key(key),
            "{command} was acknowledged, but {key} is not there"
        );
    }
    // Every object was made by one command; the ones without an acknowledgement by a lost answer.
    let made = tables.commands.values().filter(|(_, command)| command.digest == "create");
    let made: Vec<Key> = made.filter_map(|(_, command)| command.reply.body.parse().ok()).collect();
    let there = widgets(tables).count();
    hold!(made.len() == there, "{} commands made {there} objects", made.len());
    for (key, changes) in ledger.changed.lock().iter() {
        let generation = tables.objects.get(key).map_or(0, |(_, object)| object.generation);
        hold!(
            generation > *changes,
            "{key}: {changes} changes were acknowledged, but it is at generation {generation}"
        );
    }
    let commands = tables.commands.values().filter(|(_, command)| command.digest == "change");
    let mut changes: BTreeMap<Key, i64> = BTreeMap::new();
    for (_, command) in commands {
        if let Ok(key) = command.reply.body.parse::<Key>() {
            *changes.entry(key).or_default() += 1;
        }
    }
    for (key, object) in widgets(tables) {
        let carried_out = changes.get(key).copied().unwrap_or(0);
        hold!(
            object.generation == 1 + carried_out,
            "{key} is at generation {} after {carried_out} changes",
            object.generation
        );
    }
    Ok(())
}

/// Every object has reached its end, and the workshop agrees.
fn ended(world: &World, tables: &Tables) -> Result<(), Broken> {
    let standing = world.workshop.standing();
    for (key, object) in widgets(tables) {
        let spec = spec(object).map_err(|error| Broken(error.to_string()))?;
        let stands = standing.get(key);
        if blocked(tables, object)? {
            continue;
        }
        hold!(
            object.observed == object.generation,
            "{key} ({}) is at {} of {}",
            object.phase,
            object.observed,
            object.generation
        );
        if spec.deleting {
            hold!(
                object.deleted_at.is_some() && object.phase == "deleted",
                "{key} is not deleted but {}",
                object.phase
            );
            hold!(stands.is_none(), "{key} is deleted but stands in the workshop");
        } else {
            hold!(object.phase == "ready", "{key} is not ready but {}", object.phase);
            hold!(
                stands == Some(&(object.generation, spec.size)),
                "{key} stands as {stands:?}, wanted {}",
                object.generation
            );
        }
    }
    let unknown: Vec<_> =
        standing.keys().filter(|key| !tables.objects.contains_key(*key)).collect();
    hold!(unknown.is_empty(), "nobody asked for {unknown:?}");
    Ok(())
}

/// Whether it says why it cannot go on, and that is true: something that it depends on is going
/// or blocked itself, or something that depends on it is still there.
fn blocked(tables: &Tables, object: &Object) -> Result<bool, Broken> {
    let status: Status = object.status.parse().map_err(|error| Broken(error.to_string()))?;
    if object.deleted_at.is_some() || status.waiting_for.is_empty() {
        return Ok(false);
    }
    for key in &status.waiting_for {
        let Some((_, other)) = tables.objects.get(key) else { return Ok(false) };
        let is_right = match object.phase.as_str() {
            "waiting" => other.phase == "deleting" || other.phase == "waiting",
            "deleting" => other.deleted_at.is_none(),
            _ => false,
        };
        hold!(is_right, "{} waits for {key}, which is {}", object.key, other.phase);
    }
    Ok(true)
}

fn allotments(tables: &Tables) -> Result<(), Broken> {
    let alive: Vec<&Object> = widgets(tables)
        .map(|(_, object)| object)
        .filter(|object| object.deleted_at.is_none())
        .collect();
    for org in ORGS {
        let used = tables.counters.get(&format!("widgets/{org}")).map_or(0, |counter| counter.used);
        let there = alive.iter().filter(|object| object.org == org).count() as i64;
        hold!(used == there, "{org} uses {used} of its quota, but has {there} widgets");
    }
    let names = tables.counters.keys().filter(|name| name.starts_with("name/widget/")).count();
    hold!(names == alive.len(), "{names} names are taken by {} widgets", alive.len());
    let holders = tables.holds.keys().filter(|(_, holder)| holder.starts_with("widget/")).count();
    hold!(holders == 2 * alive.len(), "allotments leaked: {:?}", tables.holds);
    Ok(())
}

/// Not the progress of an attempt, the run of a schedule, a written blob or a rejected command.
fn carries_object(event: &Event) -> bool {
    let others = [super::schedules::TICK, "mainstay.blob.written", "mainstay.command.rejected"];
    !event.kind.ends_with(".progress") && !others.contains(&event.kind.as_str())
}

fn widgets(tables: &Tables) -> impl Iterator<Item = (&Key, &Object)> {
    let all = tables.objects.iter().filter(|(key, _)| key.kind() == KIND);
    all.map(|(key, (_, object))| (key, object))
}

/// Numbered without a gap; for each object every revision, in order, the last one as it stands.
fn events(tables: &Tables) -> Result<(), Broken> {
    let mut last: BTreeMap<&Key, Object> = BTreeMap::new();
    for (event, expected) in tables.events.iter().zip(1..) {
        hold!(event.seq == expected, "event {expected} is missing, {} stands there", event.seq);
        if !carries_object(event) {
            continue;
        }
        let object: Object = event.data.parse().map_err(|error| Broken(error.to_string()))?;
        let before = last.get(&event.subject).map_or(0, |object| object.revision);
        hold!(
            object.revision == before + 1,
            "{}: revision {} follows {before}",
            event.subject,
            object.revision
        );
        last.insert(&event.subject, object);
    }
    hold!(tables.events.len() as i64 == tables.head.event_seq, "the last events are missing");
    for (key, (_, object)) in &tables.objects {
        hold!(last.get(key) == Some(object), "the last event of {key} is not how it stands");
    }
    Ok(())
}

fn audit(tables: &Tables) -> Result<(), Broken> {
    let mut check = AuditCheck::default();
    let whole = tables
        .audit
        .iter()
        .try_for_each(|entry| check.next(entry))
        .and_then(|()| check.end(&tables.head));
    whole.map_err(|fault| Broken(fault.to_string()))?;
    let changes =
        tables.events.iter().filter(|it| carries_object(it) && it.subject.kind() == KIND).count();
    let entries = tables.audit.iter().filter(|it| !it.entry.action.starts_with("board."));
    let entries = entries.count();
    hold!(entries == changes, "{changes} changes, {entries} audit entries");
    Ok(())
}

/// No effect twice, none backwards, each with an id of its own.
fn effects(world: &World, tables: &Tables) -> Result<(), Broken> {
    let builds = world.workshop.builds();
    let distinct: BTreeSet<_> =
        builds.values().map(|(key, generation, _)| (key, generation)).collect();
    hold!(distinct.len() == builds.len(), "one build has two ids: {builds:?}");
    let mut last: BTreeMap<Key, i64> = BTreeMap::new();
    for (key, generation) in world.workshop.done() {
        let before = last.insert(key.clone(), generation);
        match before {
            Some(0) => hold!(false, "{key} was touched after it was demolished"),
            Some(before) => hold!(
                generation == 0 || generation > before,
                "{key}: generation {generation} was built after {before}"
            ),
            None => {}
        }
        hold!(tables.objects.contains_key(&key), "{key} was built but does not exist");
    }
    Ok(())
}
