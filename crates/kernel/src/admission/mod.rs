//! Decides which changes of a batch are admitted. Pure: the store locks and loads the rows
//! that the batch touches, [`BatchState::admit`] decides each change against them and applies the
//! accepted ones in memory, and the store writes the rows that differ.
//!
//! SQLite, PostgreSQL and the simulator share this file; none of them decides anything itself.

mod numbered;
mod rows;
mod undo;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use crate::blob::{BlobWrite, StoredBlob, surplus};
use crate::change::{
    Accepted, Change, CommandRecord, CursorMove, Edge, OBJECT_BYTES_MAX, Outcome, Refusal, Verdict,
    Wake, Work, Write, WriteKind,
};
use crate::queue::{QueueRow, State};
use crate::{Key, Lane, Object, Timestamp};

pub use numbered::NumberedLogs;
pub use rows::{
    Counter, DEPENDENTS_AT_ONCE, Lease, RowSet, Tracked, dependents_of, dependents_row, take_lease,
};

/// The time of a commit by two clocks. Those of callers on different machines differ, so leases and
/// due times are kept and judged by the store's alone.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    pub caller: Timestamp,
    pub store: Timestamp,
}

impl Clocks {
    fn by_store(self, at: Timestamp) -> Timestamp {
        at.translated(self.caller, self.store)
    }
}

/// A row as the changes admitted before left it.
fn current<'a, K, Q, T>(rows: &'a BTreeMap<K, Tracked<T>>, key: &Q) -> Option<&'a T>
where
    K: Borrow<Q> + Ord,
    Q: Ord + ?Sized,
{
    rows.get(key)?.after.as_ref()
}

/// The rows that a batch touches. What was not loaded does not exist.
#[derive(Debug, Default)]
pub struct BatchState {
    /// The revisions of objects.
    pub objects: BTreeMap<Key, Tracked<i64>>,
    pub dependents: Neighbours,
    /// Objects with so many dependents that the driver wakes them.
    pub in_pages: BTreeSet<Key>,
    pub dependencies: Neighbours,
    pub queue: BTreeMap<Key, Tracked<QueueRow>>,
    pub counters: BTreeMap<String, Tracked<Counter>>,
    pub holds: BTreeMap<(String, String), Tracked<i64>>,
    pub leases: BTreeMap<String, Lease>,
    pub commands: BTreeMap<String, Tracked<CommandRecord>>,
    pub cursors: BTreeMap<String, Tracked<CursorMove>>,
    /// The versions of blobs, and how many parts they have.
    pub blobs: BTreeMap<(Key, String), Tracked<(i64, i32)>>,
    /// What is written of them.
    pub blob_data: BTreeMap<(Key, String), StoredBlob>,
    /// Blobs to remove before any is written; without a name, all of the object.
    pub blob_removals: BTreeSet<(Key, Option<String>)>,
    /// The last accepted write of each object, and whether any of them was more than a transition.
    pub writes: BTreeMap<Key, (Object, WriteKind)>,
    /// The dependencies of each object whose edges are replaced, each with its role.
    pub edges: BTreeMap<Key, BTreeMap<Key, String>>,
}

/// An object -> those that depend on it, or that it depends on, each with its organisation.
pub type Neighbours = BTreeMap<Key, BTreeMap<Key, String>>;

impl BatchState {
    /// Decides the changes in order, each against the state that the earlier ones left. Due times
    /// are by the caller's clock; the queue has those of the store's.
    pub fn admit(&mut self, changes: &[Change], clocks: Clocks) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = Vec::with_capacity(changes.len());
        for group in changes.chunk_by(|_, next| next.follows) {
            match self.admit_group(group, clocks) {
                Ok(accepted) => verdicts.extend(accepted.into_iter().map(Ok)),
                Err(refusal) => verdicts.extend(group.iter().map(|_| Err(refusal.clone()))),
            }
        }
        verdicts
    }

    /// Admits all of these changes, or none.
    fn admit_group(&mut self, group: &[Change], clocks: Clocks) -> Result<Vec<Accepted>, Refusal> {
        let before = (group.len() > 1).then(|| self.copy_of(group));
        let mut accepted = Vec::with_capacity(group.len());
        for change in group {
            if let Err(refusal) = self.check(change) {
                if let Some(before) = before {
                    self.restore(before);
                }
                return Err(refusal);
            }
            accepted.push(Accepted {
                revision: self.apply(change, clocks),
                event: None,
                audit: None,
            });
        }
        Ok(accepted)
    }

    /// Leaves the dependents of objects that have more than `most` to the driver.
    pub fn page_dependents(&mut self, most: usize) {
        let in_pages = &mut self.in_pages;
        self.dependents.retain(|key, all| {
            let few = all.len() <= most;
            if !few {
                in_pages.insert(key.clone());
            }
            few
        });
    }

    /// Whether the batch made a row due, now or later.
    pub fn woke(&self) -> bool {
        let waits = |row: &QueueRow| matches!(row.state, State::Ready | State::Waiting);
        self.queue
            .values()
            .any(|tracked| tracked.changed() && tracked.after.as_ref().is_some_and(waits))
    }

    fn check(&self, change: &Change) -> Result<(), Refusal> {
        self.check_command(change)?;
        for lease in &change.leases {
            if self.leases.get(&lease.name).map(|held| held.fence) != Some(lease.fence) {
                return Err(Refusal::FenceLost(lease.name.clone()));
            }
        }
        self.check_work(change)?;
        for (key, expected) in &change.expects {
            self.check_revision(key, *expected)?;
        }
        if let Some(Write { kind, object, .. }) = &change.write {
            let (key, bytes) = (&object.key, object.bytes());
            if *kind != WriteKind::Create {
                self.check_revision(key, object.revision)?;
            } else if current(&self.objects, key).is_some() {
                return Err(Refusal::Exists(key.clone()));
            }
            if bytes > OBJECT_BYTES_MAX {
                return Err(Refusal::TooLarge { key: key.clone(), bytes });
            }
        }
        self.check_blobs(change)?;
        if let Some(CursorMove { name, fence, .. }) = &change.cursor
            && current(&self.cursors, name).is_some_and(|there| there.fence > *fence)
        {
            return Err(Refusal::FenceLost(name.clone()));
        }
        self.check_takes(change)
    }

    fn check_blobs(&self, change: &Change) -> Result<(), Refusal> {
        for blob in &change.blobs {
            let BlobWrite::Put { key, name, expected: Some(expected), .. } = blob else { continue };
            let (found, _) = *current(&self.blobs, &(key.clone(), name.clone())).unwrap_or(&(0, 0));
            if found != *expected {
                return Err(Refusal::Stale { key: key.clone(), expected: *expected, found });
            }
        }
        Ok(())
    }

    fn check_command(&self, change: &Change) -> Result<(), Refusal> {
        let Some(command) = &change.command else { return Ok(()) };
        match current(&self.commands, &command.id) {
            None => Ok(()),
            Some(done) if done.digest == command.digest => {
                Err(Refusal::Repeated { id: command.id.clone(), reply: done.reply.clone() })
            }
            Some(_) => Err(Refusal::Mismatch { id: command.id.clone() }),
        }
    }

    fn check_work(&self, change: &Change) -> Result<(), Refusal> {
        match &change.work {
            Some(Work::RenewLease { key, fence, .. } | Work::Complete { key, fence, .. }) => {
                let ours = |row: &QueueRow| row.fence == *fence && row.state == State::Running;
                let ours = current(&self.queue, key).is_some_and(ours);
                if ours { Ok(()) } else { Err(Refusal::FenceLost(key.to_string())) }
            }
            Some(Work::Resume { key }) => {
                current(&self.queue, key).map(|_| ()).ok_or_else(|| Refusal::Missing(key.clone()))
            }
            Some(Work::Pause { .. }) | None => Ok(()),
        }
    }

    fn check_revision(&self, key: &Key, expected: i64) -> Result<(), Refusal> {
        match current(&self.objects, key) {
            None => Err(Refusal::Missing(key.clone())),
            Some(found) if *found == expected => Ok(()),
            Some(found) => Err(Refusal::Stale { key: key.clone(), expected, found: *found }),
        }
    }

    /// Checks that all takes of a change fit together, not only each alone. They are applied in
    /// order: what a holder releases or takes again counts once.
    fn check_takes(&self, change: &Change) -> Result<(), Refusal> {
        let releases = change.releases.iter().map(|r| (&r.counter, &r.holder, 0, i64::MAX));
        let takes = change.takes.iter().map(|t| (&t.counter, &t.holder, t.amount, t.limit));
        let mut held: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let mut more: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (counter, holder, amount, limit) in releases.chain(takes) {
            let before = held.insert((counter, holder), amount);
            let before = before.unwrap_or_else(|| self.held(counter, holder));
            let (asked, lowest) = more.entry(counter).or_insert((0, i64::MAX));
            *asked = asked.saturating_add(amount.saturating_sub(before));
            *lowest = limit.min(*lowest);
        }
        for (counter, (asked, limit)) in more {
            let used = current(&self.counters, counter).map_or(0, |counter| counter.used);
            if asked > 0 && used.saturating_add(asked) > limit {
                return Err(Refusal::Limit { counter: counter.into(), used, limit, asked });
            }
        }
        Ok(())
    }

    fn held(&self, counter: &str, holder: &str) -> i64 {
        *current(&self.holds, &(counter.to_owned(), holder.to_owned())).unwrap_or(&0)
    }

    /// Applies an admitted change. Returns the object's new revision.
    fn apply(&mut self, change: &Change, clocks: Clocks) -> Option<i64> {
        if let Some(command) = &change.command {
            self.commands.entry(command.id.clone()).or_default().after = Some(command.clone());
        }
        let revision = change.write.as_ref().map(|write| self.apply_write(change, write));
        change.blobs.iter().for_each(|blob| self.apply_blob(blob));
        if let Some(cursor) = &change.cursor {
            self.cursors.entry(cursor.name.clone()).or_default().after = Some(cursor.clone());
        }
        if let (Some(write), Some(depends_on)) = (&change.write, &change.depends_on) {
            // Wakes former dependencies too.
            self.wake_neighbours(change, clocks.store);
            self.apply_edges(&write.object, depends_on);
        }
        if let Some(work) = &change.work {
            self.apply_work(work, clocks);
        }
        for Wake { key, org, lane, due } in &change.wakes {
            self.wake(key, org, *lane, clocks.by_store(*due), clocks.store);
        }
        self.wake_neighbours(change, clocks.store);
        for release in &change.releases {
            self.hold(&release.counter, &release.holder, 0, None);
        }
        for take in &change.takes {
            self.hold(&take.counter, &take.holder, take.amount, Some(take.limit));
        }
        revision
    }

    fn apply_write(&mut self, change: &Change, write: &Write) -> i64 {
        let kind = write.kind;
        let mut object = written(change, write);
        let (key, revision) = (object.key.clone(), object.revision);
        if object.deleted_at.is_some() {
            self.remove_blobs(&key, None);
        }
        self.objects.entry(key.clone()).or_default().after = Some(revision);
        let before = self.writes.remove(&key);
        let kind_before = before.as_ref().map_or(kind, |(_, kind)| *kind);
        if let (WriteKind::Transition, Some((before, _))) = (kind, before) {
            let Object { phase, status, observed, updated_at, .. } = object;
            object = Object { phase, status, observed, revision, updated_at, ..before };
        }
        self.writes.insert(key, (object, kind.max(kind_before)));
        revision
    }

    fn apply_blob(&mut self, write: &BlobWrite) {
        match write {
            BlobWrite::Put { key, name, data, .. } => {
                let place = (key.clone(), name.clone());
                let tracked = self.blobs.entry(place.clone()).or_default();
                let (version, before) = tracked.after.unwrap_or((0, 0));
                tracked.after = Some((version + 1, data.parts));
                self.blob_data.insert(place, data.clone());
                for part in surplus(name, before, data.parts) {
                    self.remove_blobs(key, Some(&part));
                }
            }
            BlobWrite::Remove { key, name } => self.remove_blobs(key, name.as_deref()),
        }
    }

    fn remove_blobs(&mut self, key: &Key, name: Option<&str>) {
        let removed =
            |(of, named): &(Key, String)| of == key && name.is_none_or(|name| name == named);
        for (place, tracked) in &mut self.blobs {
            if removed(place) {
                tracked.after = None;
            }
        }
        self.blob_data.retain(|place, _| !removed(place));
        self.blob_removals.insert((key.clone(), name.map(str::to_owned)));
    }

    fn apply_edges(&mut self, object: &Object, depends_on: &[Edge]) {
        let key = &object.key;
        for dependents in self.dependents.values_mut() {
            dependents.remove(key);
        }
        for dependency in depends_on {
            self.dependents
                .entry(dependency.key.clone())
                .or_default()
                .insert(key.clone(), object.org.clone());
        }
        // The dependency's organisation is unknown here; the dependent's own only affects fairness.
        let to = depends_on.iter().map(|to| (to.key.clone(), object.org.clone()));
        self.dependencies.insert(key.clone(), to.collect());
        let mut edges = BTreeMap::new();
        for Edge { key, role } in depends_on {
            edges.entry(key.clone()).or_insert_with(|| role.clone());
        }
        self.edges.insert(key.clone(), edges);
    }

    fn apply_work(&mut self, work: &Work, clocks: Clocks) {
        let now = clocks.store;
        let tracked = self.queue.entry(work.key().clone()).or_default();
        match work {
            Work::RenewLease { ttl, note, .. } => {
                if let Some(row) = &mut tracked.after {
                    row.due = now.plus(*ttl);
                    row.note = note.clone().unwrap_or_else(|| std::mem::take(&mut row.note));
                }
            }
            Work::Complete { outcome, .. } => {
                let mut outcome = outcome.clone();
                if let Outcome::RequeueAt { at }
                | Outcome::Pending { at, .. }
                | Outcome::Retry { at, .. } = &mut outcome
                {
                    *at = clocks.by_store(*at);
                }
                tracked.after = tracked.after.take().and_then(|row| row.complete(&outcome, now));
            }
            Work::Pause { key, org, reason } => {
                tracked.after.get_or_insert_with(|| QueueRow::new(key.clone(), org)).pause(reason);
            }
            Work::Resume { .. } => {
                if let Some(row) = &mut tracked.after {
                    row.resume(now);
                }
            }
        }
    }

    fn wake(&mut self, key: &Key, org: &str, lane: Lane, due: Timestamp, now: Timestamp) {
        let tracked = self.queue.entry(key.clone()).or_default();
        tracked.after.get_or_insert_with(|| QueueRow::new(key.clone(), org)).wake(lane, due, now);
    }

    fn wake_neighbours(&mut self, change: &Change, now: Timestamp) {
        let Some(write) = &change.write else { return };
        let key = &write.object.key;
        let of = |yes: bool, map: &Neighbours| {
            if yes { map.get(key).cloned().unwrap_or_default() } else { BTreeMap::new() }
        };
        if change.wake_dependents && self.in_pages.contains(key) {
            let org = write.object.org.clone();
            self.wake(&dependents_row(key), &org, Lane::Normal, now, now);
        }
        let dependents = of(change.wake_dependents, &self.dependents);
        let dependencies = of(change.wake_dependencies, &self.dependencies);
        for (key, org) in dependents.into_iter().chain(dependencies) {
            self.wake(&key, &org, Lane::Normal, now, now);
        }
    }

    fn hold(&mut self, counter: &str, holder: &str, amount: i64, limit: Option<i64>) {
        let key = (counter.to_owned(), holder.to_owned());
        let tracked = self.holds.entry(key).or_default();
        let delta = amount - tracked.after.unwrap_or(0);
        tracked.after = (amount != 0).then_some(amount);
        let tracked = self.counters.entry(counter.to_owned()).or_default();
        let before = tracked.after.unwrap_or(Counter { used: 0, limit: 0 });
        let after = Counter { used: before.used + delta, limit: limit.unwrap_or(before.limit) };
        tracked.after = (after.used != 0).then_some(after);
    }
}

/// The object as the store will hold it.
fn written(change: &Change, write: &Write) -> Object {
    let mut object = write.object.clone();
    object.revision = if write.kind == WriteKind::Create { 1 } else { object.revision + 1 };
    if let Some(cause) = change.cause.as_ref().filter(|_| write.kind != WriteKind::Transition) {
        object.cause.clone_from(cause);
    }
    object
}
