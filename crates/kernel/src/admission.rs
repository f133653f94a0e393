//! Decides which changes of a batch are admitted. Pure: the store locks and loads the rows
//! that the batch touches, [`BatchState::admit`] decides each change against them and applies the
//! accepted ones in memory, and the store writes the rows that differ.
//!
//! SQLite, PostgreSQL and the simulator share this file; none of them decides anything itself.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use crate::change::{Accepted, Change, CommandRecord, Refusal, Verdict, Wake, Work, Write};
use crate::log::{AuditEntry, Event, LogHeads};
use crate::queue::{QueueRow, State};
use crate::{Json, Key, Lane, Object, Timestamp};

/// The rows that the store must lock and load before a batch can be decided.
#[derive(Debug, Default)]
pub struct RowSet {
    pub objects: BTreeSet<Key>,
    /// Objects whose dependents are woken.
    pub dependents_of: BTreeSet<Key>,
    /// Objects whose dependencies are woken.
    pub dependencies_of: BTreeSet<Key>,
    pub queue: BTreeSet<Key>,
    pub counters: BTreeSet<String>,
    pub holds: BTreeSet<(String, String)>,
    pub leases: BTreeSet<String>,
    pub commands: BTreeSet<String>,
}

impl RowSet {
    pub fn add(&mut self, changes: &[Change]) {
        let touched = self;
        for change in changes {
            touched.commands.extend(change.command.iter().map(|command| command.id.clone()));
            touched.leases.extend(change.leases.iter().map(|lease| lease.name.clone()));
            touched.objects.extend(change.expects.iter().map(|(key, _)| key.clone()));
            touched.queue.extend(change.work.iter().map(|work| work.key().clone()));
            touched.queue.extend(change.wakes.iter().map(|wake| wake.key.clone()));
            if let Some(write) = &change.write {
                let key = &write.object().key;
                touched.objects.insert(key.clone());
                if change.wake_dependents {
                    touched.dependents_of.insert(key.clone());
                }
                if change.wake_dependencies {
                    touched.dependencies_of.insert(key.clone());
                }
                // A later change of the batch may wake the ends of a new edge.
                if let Some(depends_on) = &change.depends_on {
                    touched.queue.insert(key.clone());
                    touched.queue.extend(depends_on.iter().cloned());
                }
            }
            let takes = change.takes.iter().map(|take| (&take.counter, &take.holder));
            let releases =
                change.releases.iter().map(|release| (&release.counter, &release.holder));
            for (counter, holder) in takes.chain(releases) {
                touched.counters.insert(counter.clone());
                touched.holds.insert((counter.clone(), holder.clone()));
            }
        }
    }
}

/// A row as it was loaded and as it will be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracked<T> {
    pub before: Option<T>,
    pub after: Option<T>,
}

impl<T> Default for Tracked<T> {
    fn default() -> Tracked<T> {
        Tracked { before: None, after: None }
    }
}

impl<T: Clone + PartialEq> Tracked<T> {
    pub fn loaded(row: T) -> Tracked<T> {
        Tracked { before: Some(row.clone()), after: Some(row) }
    }

    pub fn changed(&self) -> bool {
        self.before != self.after
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    pub used: i64,
    pub limit: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub holder: String,
    pub fence: i64,
    pub until: Timestamp,
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
    /// key -> (dependent, its organisation)
    pub dependents: BTreeMap<Key, BTreeMap<Key, String>>,
    /// key -> (dependency, its organisation)
    pub dependencies: BTreeMap<Key, BTreeMap<Key, String>>,
    pub queue: BTreeMap<Key, Tracked<QueueRow>>,
    pub counters: BTreeMap<String, Tracked<Counter>>,
    pub holds: BTreeMap<(String, String), Tracked<i64>>,
    pub leases: BTreeMap<String, Lease>,
    pub commands: BTreeMap<String, Tracked<CommandRecord>>,
    /// The last accepted write of each object, and whether any of them was more than a transition.
    pub writes: BTreeMap<Key, (Object, WriteKind)>,
    /// The dependencies of each object whose edges are replaced.
    pub edges: BTreeMap<Key, Vec<Key>>,
}

/// The narrowest statement that covers all writes of one object in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    Transition,
    Update,
    Create,
}

/// The events and audit entries of the admitted changes, with their sequence numbers.
#[derive(Debug, Default)]
pub struct NumberedLogs {
    pub events: Vec<Event>,
    pub audit: Vec<AuditEntry>,
}

impl NumberedLogs {
    /// Assigns sequence numbers to the admitted changes and, for the audit log, hashes.
    pub fn add(
        &mut self,
        changes: &[Change],
        verdicts: &mut [Verdict],
        head: &mut LogHeads,
        now: Timestamp,
    ) {
        for (change, verdict) in changes.iter().zip(verdicts) {
            let Ok(accepted) = verdict else { continue };
            if let Some(draft) = &change.event {
                let new = || Some(Json::encode(&written(change.write.as_ref()?)));
                let data = draft.data.clone().or_else(new).unwrap_or_default();
                let event = head.append_event(draft, data, now);
                accepted.event = Some(event.seq);
                self.events.push(event);
            }
            if let Some(draft) = &change.audit {
                let entry = head.append_audit(draft.clone(), now);
                accepted.audit = Some(entry.seq);
                self.audit.push(entry);
            }
        }
    }
}

impl BatchState {
    /// Decides the changes in order, each against the state that the earlier ones left.
    pub fn admit(&mut self, changes: &[Change], now: Timestamp) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = Vec::with_capacity(changes.len());
        for change in changes {
            let verdict = match verdicts.last() {
                Some(Err(refusal)) if change.follows => Err(refusal.clone()),
                _ => self.admit_one(change, now),
            };
            verdicts.push(verdict);
        }
        verdicts
    }

    fn admit_one(&mut self, change: &Change, now: Timestamp) -> Verdict {
        self.check(change)?;
        Ok(Accepted { revision: self.apply(change, now), event: None, audit: None })
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
        match &change.write {
            Some(Write::Create(object)) if current(&self.objects, &object.key).is_some() => {
                return Err(Refusal::Exists(object.key.clone()));
            }
            Some(Write::Update(object) | Write::Transition(object)) => {
                self.check_revision(&object.key, object.revision)?;
            }
            _ => {}
        }
        self.check_takes(change)
    }

    fn check_command(&self, change: &Change) -> Result<(), Refusal> {
        let Some(command) = &change.command else { return Ok(()) };
        match current(&self.commands, &command.id) {
            None => Ok(()),
            Some(done) if done.digest == command.digest => {
                Err(Refusal::Repeated { id: command.id.clone(), answer: done.answer.clone() })
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
    fn apply(&mut self, change: &Change, now: Timestamp) -> Option<i64> {
        if let Some(command) = &change.command {
            self.commands.entry(command.id.clone()).or_default().after = Some(command.clone());
        }
        let revision = change.write.as_ref().map(|write| self.apply_write(write));
        if let (Some(write), Some(depends_on)) = (&change.write, &change.depends_on) {
            // Wakes former dependencies too.
            self.wake_neighbours(change, now);
            self.apply_edges(write.object(), depends_on);
        }
        if let Some(work) = &change.work {
            self.apply_work(work, now);
        }
        for wake in &change.wakes {
            self.wake(wake, now);
        }
        self.wake_neighbours(change, now);
        for release in &change.releases {
            self.hold(&release.counter, &release.holder, 0, None);
        }
        for take in &change.takes {
            self.hold(&take.counter, &take.holder, take.amount, Some(take.limit));
        }
        revision
    }

    fn apply_write(&mut self, write: &Write) -> i64 {
        let kind = match write {
            Write::Create(_) => WriteKind::Create,
            Write::Update(_) => WriteKind::Update,
            Write::Transition(_) => WriteKind::Transition,
        };
        let mut object = written(write);
        let (key, revision) = (object.key.clone(), object.revision);
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

    fn apply_edges(&mut self, object: &Object, depends_on: &[Key]) {
        let key = &object.key;
        for dependents in self.dependents.values_mut() {
            dependents.remove(key);
        }
        for dependency in depends_on {
            self.dependents
                .entry(dependency.clone())
                .or_default()
                .insert(key.clone(), object.org.clone());
        }
        // The dependency's organisation is unknown here; the dependent's own only affects fairness.
        let dependencies = depends_on.iter().map(|to| (to.clone(), object.org.clone())).collect();
        self.dependencies.insert(key.clone(), dependencies);
        self.edges.insert(key.clone(), depends_on.to_vec());
    }

    fn apply_work(&mut self, work: &Work, now: Timestamp) {
        let tracked = self.queue.entry(work.key().clone()).or_default();
        match work {
            Work::RenewLease { until, .. } => {
                if let Some(row) = &mut tracked.after {
                    row.due = *until;
                }
            }
            Work::Complete { outcome, .. } => {
                tracked.after = tracked.after.take().and_then(|row| row.complete(outcome, now));
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

    fn wake(&mut self, wake: &Wake, now: Timestamp) {
        let tracked = self.queue.entry(wake.key.clone()).or_default();
        tracked
            .after
            .get_or_insert_with(|| QueueRow::new(wake.key.clone(), &wake.org))
            .wake(wake, now);
    }

    fn wake_neighbours(&mut self, change: &Change, now: Timestamp) {
        let Some(write) = &change.write else { return };
        let key = &write.object().key;
        let of = |yes: bool, map: &BTreeMap<Key, BTreeMap<Key, String>>| {
            if yes { map.get(key).cloned().unwrap_or_default() } else { BTreeMap::new() }
        };
        let dependents = of(change.wake_dependents, &self.dependents);
        let dependencies = of(change.wake_dependencies, &self.dependencies);
        for (key, org) in dependents.into_iter().chain(dependencies) {
            self.wake(&Wake { key, org, lane: Lane::Normal, due: now }, now);
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

/// The lease after `holder` requested it; `None` while another holder has it. The fence increases
/// whenever the lease changes hands or had expired.
pub fn take_lease(
    was: Option<&Lease>,
    holder: &str,
    now: Timestamp,
    until: Timestamp,
) -> Option<Lease> {
    let fence = match was {
        None => 1,
        Some(lease) if lease.until > now && lease.holder == holder => lease.fence,
        Some(lease) if lease.until > now => return None,
        Some(lease) => lease.fence + 1,
    };
    Some(Lease { holder: holder.into(), fence, until })
}

/// The object as the store will hold it.
fn written(write: &Write) -> Object {
    let mut object = write.object().clone();
    object.revision = match write {
        Write::Create(_) => 1,
        Write::Update(_) | Write::Transition(_) => object.revision + 1,
    };
    object
}
