//! A store in memory, for the simulator: the same decisions as the real ones, no disk, no threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use kernel::admission::{
    BatchState, Clocks, Counter, DEPENDENTS_AT_ONCE, Lease, NumberedLogs, RowSet, Tracked,
};
use kernel::blob::{BlobInfo, StoredBlob};
use kernel::change::{Change, CommandRecord, CursorMove, Edge, Verdict, WriteKind};
use kernel::log::{AuditConfig, AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use kernel::query::{ObjectQuery, QueryPage};
use kernel::queue::{ClaimBatch, ClaimRequest, QueueRow, State};
use kernel::store::{
    EVENTS_BYTES_MAX, KindFilter, NewestByKind, Purge, Store, Wakeups, WorkCount, WorkFilter,
};
use kernel::{Ambient, Key, Object, Result, Timestamp};
use parking_lot::Mutex;

pub use crate::bug::Bug;

/// What the real stores keep in their tables.
#[derive(Debug, Default, Clone)]
pub struct Tables {
    pub objects: BTreeMap<Key, (i64, Object)>,
    /// The dependencies of each object, with their roles.
    pub edges: BTreeMap<Key, BTreeMap<Key, String>>,
    pub queue: BTreeMap<Key, QueueRow>,
    pub counters: BTreeMap<String, Counter>,
    pub holds: BTreeMap<(String, String), i64>,
    pub leases: BTreeMap<String, Lease>,
    pub commands: BTreeMap<String, (Timestamp, CommandRecord)>,
    pub blobs: BTreeMap<(Key, String), (BlobInfo, Bytes)>,
    pub cursors: BTreeMap<String, CursorMove>,
    pub events: Vec<Event>,
    pub audit: Vec<AuditEntry>,
    pub head: LogHeads,
    /// The newest event of each kind.
    pub newest: NewestByKind,
    pub(crate) fence: i64,
    pub(crate) last_org: [String; 2],
}

pub struct Memory {
    tables: Mutex<Tables>,
    wakeups: Wakeups,
    clock: Ambient,
    bug: Option<Bug>,
    wakes_max: AtomicUsize,
    pub audit: AuditConfig,
    /// Of more, the driver wakes the dependents.
    pub dependents_at_once: usize,
    cache: Mutex<BTreeMap<Key, Arc<Object>>>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(Ambient::system(), None)
    }
}

impl Memory {
    pub fn new(clock: Ambient, bug: Option<Bug>) -> Memory {
        Memory {
            tables: Mutex::default(),
            wakeups: Wakeups::default(),
            clock,
            bug,
            wakes_max: AtomicUsize::new(0),
            audit: AuditConfig::default(),
            dependents_at_once: DEPENDENTS_AT_ONCE,
            cache: Mutex::default(),
        }
    }

    /// The time by the store's clock; with the bug, by the clock of the caller.
    fn now(&self, caller: Timestamp) -> Timestamp {
        if self.bug == Some(Bug::TrustCallersClocks) { caller } else { self.clock.now() }
    }

    /// A claim by a process whose clock shows `caller`.
    pub fn claim_from(&self, ask: &ClaimRequest, caller: Timestamp) -> ClaimBatch {
        self.tables.lock().claim(ask, self.now(caller))
    }

    /// The most wake-ups that any change had.
    pub fn wakes_max(&self) -> usize {
        self.wakes_max.load(Ordering::Relaxed)
    }

    /// Everything there is, for invariants.
    pub fn tables(&self) -> Tables {
        self.tables.lock().clone()
    }

    /// Looks at the tables without copying them.
    pub fn look<T>(&self, with: impl FnOnce(&Tables) -> T) -> T {
        with(&self.tables.lock())
    }
}

impl Tables {
    fn org_of(&self, key: &Key, or: &str) -> String {
        self.objects.get(key).map_or_else(|| or.to_owned(), |(_, object)| object.org.clone())
    }

    /// What an object depends on, directly or not.
    fn all_dependencies<'a>(&'a self, key: &'a Key) -> BTreeSet<&'a Key> {
        let (mut found, mut next) = (BTreeSet::new(), vec![key]);
        while let Some(key) = next.pop() {
            let to = self.edges.get(key).into_iter().flat_map(BTreeMap::keys);
            next.extend(to.filter(|to| found.insert(*to)));
        }
        found
    }

    fn dependents(&self, key: &Key) -> BTreeMap<Key, String> {
        let edges = self.edges.iter().filter(|(_, to)| to.contains_key(key));
        edges.map(|(from, _)| (from.clone(), self.org_of(from, ""))).collect()
    }

    fn load(&self, touched: &RowSet, dependents_at_once: usize) -> BatchState {
        let mut rows = BatchState::default();
        for key in &touched.objects {
            if let Some((_, object)) = self.objects.get(key) {
                rows.objects.insert(key.clone(), Tracked::loaded(object.revision));
            }
        }
        for key in &touched.dependents_of {
            rows.dependents.insert(key.clone(), self.dependents(key));
        }
        rows.page_dependents(dependents_at_once);
        for key in &touched.dependencies_of {
            let to = self.edges.get(key).into_iter().flat_map(BTreeMap::keys);
            let to = to.map(|key| (key.clone(), self.org_of(key, ""))).collect();
            rows.dependencies.insert(key.clone(), to);
        }
        let neighbours = rows.dependents.values().chain(rows.dependencies.values());
        let neighbours: Vec<Key> = neighbours.flat_map(|map| map.keys().cloned()).collect();
        for key in touched.queue.iter().chain(&neighbours) {
            if let Some(row) = self.queue.get(key) {
                rows.queue.insert(key.clone(), Tracked::loaded(row.clone()));
            }
        }
        for name in &touched.counters {
            if let Some(counter) = self.counters.get(name) {
                rows.counters.insert(name.clone(), Tracked::loaded(*counter));
            }
        }
        for hold in &touched.holds {
            if let Some(amount) = self.holds.get(hold) {
                rows.holds.insert(hold.clone(), Tracked::loaded(*amount));
            }
        }
        for name in &touched.leases {
            if let Some(lease) = self.leases.get(name) {
                rows.leases.insert(name.clone(), lease.clone());
            }
        }
        for place in &touched.blobs {
            if let Some((info, _)) = self.blobs.get(place) {
                let stored = (info.version, info.parts);
                rows.blobs.insert(place.clone(), Tracked::loaded(stored));
            }
        }
        for name in &touched.cursors {
            if let Some(cursor) = self.cursors.get(name) {
                rows.cursors.insert(name.clone(), Tracked::loaded(cursor.clone()));
            }
        }
        for id in &touched.commands {
            if let Some((_, command)) = self.commands.get(id) {
                rows.commands.insert(id.clone(), Tracked::loaded(command.clone()));
            }
        }
        rows
    }

    fn save(&mut self, rows: BatchState, now: Timestamp) {
        for (key, (object, kind)) in rows.writes {
            let next = self.objects.len() as i64 + 1;
            match self.objects.get_mut(&key) {
                Some((_, stored)) if kind == WriteKind::Transition => {
                    (stored.phase, stored.status) = (object.phase, object.status);
                    (stored.observed, stored.revision) = (object.observed, object.revision);
                    stored.updated_at = object.updated_at;
                }
                Some((_, stored)) => *stored = object,
                None => drop(self.objects.insert(key, (next, object))),
            }
        }
        self.edges.extend(rows.edges);
        put(&mut self.queue, rows.queue);
        put(&mut self.counters, rows.counters);
        put(&mut self.holds, rows.holds);
        put(&mut self.cursors, rows.cursors);
        for (key, name) in rows.blob_removals {
            self.blobs.retain(|(of, named), _| {
                *of != key || name.as_ref().is_some_and(|name| name != named)
            });
        }
        for ((key, name), blob) in rows.blob_data {
            let place = (key.clone(), name.clone());
            let stored = rows.blobs.get(&place).and_then(|tracked| tracked.after);
            let version = stored.map_or(1, |(version, _)| version);
            let StoredBlob { digest, size, sealed, parts, data } = blob;
            let info = BlobInfo { key, name, version, digest, size, sealed, parts, at: now };
            self.blobs.insert(place, (info, data));
        }
        for (id, tracked) in rows.commands {
            if tracked.changed()
                && let Some(command) = tracked.after
            {
                self.commands.insert(id, (now, command));
            }
        }
    }
}

fn put<K: Ord, T: Clone + PartialEq>(table: &mut BTreeMap<K, T>, slots: BTreeMap<K, Tracked<T>>) {
    for (key, tracked) in slots {
        match tracked.after {
            Some(row) => table.insert(key, row),
            None => table.remove(&key),
        };
    }
}

fn entry_matches(filter: &AuditFilter, entry: &AuditEntry) -> bool {
    filter.actor.as_deref().is_none_or(|actor| actor == entry.entry.actor)
        && filter.target.as_deref().is_none_or(|target| target == entry.entry.target)
        && filter.org.as_deref().is_none_or(|org| org == entry.entry.org)
        && entry.seq > filter.after
        && filter.before.is_none_or(|before| entry.seq < before)
}

fn row_matches(filter: &WorkFilter, row: &QueueRow) -> bool {
    filter.key.as_ref().is_none_or(|key| *key == row.key)
        && filter.org.as_deref().is_none_or(|org| org == row.org)
        && filter.state.is_none_or(|state| state == row.state)
        && filter.paused.is_none_or(|paused| paused == row.paused)
        && (!filter.failing || row.attempt > 0)
}

#[async_trait]
impl Store for Memory {
    async fn commit_all(&self, mut changes: Vec<Change>, now: Timestamp) -> Result<Vec<Verdict>> {
        self.audit.apply(&mut changes);
        let wakes = changes.iter().map(|change| change.wakes.len()).max().unwrap_or(0);
        self.wakes_max.fetch_max(wakes, Ordering::Relaxed);
        let tables = &mut *self.tables.lock();
        if let Some(bug) = self.bug {
            tables.spoil(bug, &mut changes);
        }
        let mut touched = RowSet::default();
        touched.add(&changes);
        let mut rows = tables.load(&touched, self.dependents_at_once);
        let clocks = Clocks { caller: now, store: self.now(now) };
        let mut verdicts = rows.admit(&changes, clocks);
        if self.bug == Some(Bug::ReleaseTwice) {
            for release in changes.iter().flat_map(|change| &change.releases) {
                if let Some(counter) = rows
                    .counters
                    .get_mut(&release.counter)
                    .and_then(|tracked| tracked.after.as_mut())
                {
                    counter.used -= 1;
                }
            }
        }
        let mut numbered = NumberedLogs::default();
        numbered.add(&changes, &mut verdicts, &mut tables.head, now);
        let woke = rows.woke();
        tables.save(rows, now);
        tables.newest.extend(numbered.newest_by_kind());
        tables.events.extend(numbered.events);
        if self.bug == Some(Bug::LoseEvents) && tables.events.len() % 7 == 3 {
            tables.events.pop();
        }
        tables.audit.extend(numbered.audit);
        self.wakeups.notify_event(tables.head.event_seq);
        if woke {
            self.wakeups.notify_work();
        }
        Ok(verdicts)
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<ClaimBatch> {
        Ok(self.claim_from(&ask, self.clock.now()))
    }

    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<Option<Lease>> {
        let tables = &mut *self.tables.lock();
        let now = self.clock.now();
        let next = kernel::admission::take_lease(tables.leases.get(name), holder, now, ttl);
        if let Some(lease) = &next {
            tables.leases.insert(name.into(), lease.clone());
        }
        Ok(next)
    }

    async fn unlease(&self, name: &str, fence: i64) -> Result<()> {
        if let Some(lease) = self.tables.lock().leases.get_mut(name)
            && lease.fence == fence
        {
            lease.until = Timestamp(0);
        }
        Ok(())
    }

    async fn get(&self, keys: &[Key]) -> Result<Vec<Object>> {
        let tables = self.tables.lock();
        Ok(keys
            .iter()
            .filter_map(|key| tables.objects.get(key))
            .map(|(_, object)| object.clone())
            .collect())
    }

    async fn object(&self, key: &Key) -> Result<Option<Arc<Object>>> {
        let stored = self.look(|tables| tables.objects.get(key).map(|(_, object)| object.clone()));
        let Some(stored) = stored.map(Arc::new) else { return Ok(None) };
        if self.bug != Some(Bug::StaleCache) {
            return Ok(Some(stored));
        }
        Ok(Some(self.cache.lock().entry(key.clone()).or_insert(stored).clone()))
    }

    async fn find(&self, find: &ObjectQuery) -> Result<QueryPage> {
        let tables = self.tables.lock();
        let mut found: Vec<&(i64, Object)> = tables
            .objects
            .values()
            .filter(|(num, object)| {
                let depends = |from: &Key, to: &Key| tables.all_dependencies(from).contains(to);
                find.after.is_none_or(|after| *num < after) && find.matches(object, depends)
            })
            .collect();
        found.sort_by_key(|(num, _)| -num);
        let next = found.get(find.limit).map(|_| found[find.limit - 1].0);
        let objects =
            found.into_iter().take(find.limit).map(|(_, object)| object.clone()).collect();
        Ok(QueryPage { objects, next })
    }

    async fn dependencies(&self, key: &Key) -> Result<Vec<Edge>> {
        let tables = self.tables.lock();
        let edges = tables.edges.get(key).into_iter().flatten();
        Ok(edges.map(|(to, role)| Edge::new(to.clone(), role)).collect())
    }

    async fn dependents(&self, key: &Key) -> Result<Vec<Edge>> {
        let tables = self.tables.lock();
        let edges = tables.edges.iter().filter_map(|(from, to)| Some((from, to.get(key)?)));
        Ok(edges.map(|(from, role)| Edge::new(from.clone(), role)).collect())
    }

    async fn dependents_after(&self, key: &Key, after: &str, limit: usize) -> Result<Vec<Key>> {
        let all = self.tables.lock().dependents(key).into_keys();
        Ok(all.filter(|dependent| dependent.as_str() > after).take(limit).collect())
    }

    async fn counter(&self, name: &str) -> Result<Option<Counter>> {
        Ok(self.tables.lock().counters.get(name).copied())
    }

    async fn command(&self, id: &str) -> Result<Option<CommandRecord>> {
        Ok(self.tables.lock().commands.get(id).map(|(_, command)| command.clone()))
    }

    async fn blob(&self, key: &Key, name: &str) -> Result<Option<(BlobInfo, Bytes)>> {
        Ok(self.tables.lock().blobs.get(&(key.clone(), name.to_owned())).cloned())
    }

    async fn blobs(&self, key: &Key) -> Result<Vec<BlobInfo>> {
        let tables = self.tables.lock();
        let of_key = tables.blobs.iter().filter(|((of, _), _)| of == key);
        Ok(of_key.map(|(_, (info, _))| info.clone()).collect())
    }

    async fn cursor(&self, name: &str) -> Result<Option<CursorMove>> {
        Ok(self.tables.lock().cursors.get(name).cloned())
    }

    async fn cursors(&self) -> Result<Vec<CursorMove>> {
        Ok(self.tables.lock().cursors.values().cloned().collect())
    }

    async fn events(&self, after: i64, filter: &EventFilter, limit: usize) -> Result<Vec<Event>> {
        let tables = self.tables.lock();
        let events =
            tables.events.iter().filter(|event| event.seq > after && filter.matches(event));
        let mut bytes = 0;
        let fits = |event: &&Event| {
            let fits = bytes < EVENTS_BYTES_MAX;
            bytes += event.data.text().len();
            fits
        };
        Ok(events.take(limit).take_while(fits).cloned().collect())
    }

    async fn first_event(&self) -> Result<Option<i64>> {
        Ok(self.tables.lock().events.first().map(|event| event.seq))
    }

    async fn audit(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>> {
        let tables = self.tables.lock();
        let matching = tables.audit.iter().filter(|entry| entry_matches(filter, entry)).cloned();
        Ok(match filter.before {
            Some(_) => matching.rev().take(limit).collect(),
            None => matching.take(limit).collect(),
        })
    }

    async fn head(&self) -> Result<LogHeads> {
        Ok(self.tables.lock().head.clone())
    }

    async fn newest_event(&self) -> Result<i64> {
        Ok(self.tables.lock().head.event_seq)
    }

    async fn newest_event_of(&self, kinds: &KindFilter) -> Result<i64> {
        let tables = self.tables.lock();
        let wanted = tables.newest.iter().filter(|(kind, _)| kinds(kind));
        Ok(wanted.map(|(_, seq)| *seq).max().unwrap_or(0))
    }

    async fn work(&self, filter: &WorkFilter, limit: usize) -> Result<Vec<QueueRow>> {
        let tables = self.tables.lock();
        let mut rows: Vec<QueueRow> =
            tables.queue.values().filter(|row| row_matches(filter, row)).cloned().collect();
        rows.sort_by_key(|row| row.due);
        rows.truncate(limit);
        Ok(rows)
    }

    async fn work_counts(&self) -> Result<Vec<WorkCount>> {
        let mut counts: BTreeMap<(String, State, bool, bool), i64> = BTreeMap::new();
        for row in self.tables.lock().queue.values() {
            *counts
                .entry((row.key.kind().into(), row.state, row.paused, row.attempt > 0))
                .or_default() += 1;
        }
        let count = |((kind, state, paused, failing), rows)| WorkCount {
            kind,
            state,
            paused,
            failing,
            rows,
        };
        Ok(counts.into_iter().map(count).collect())
    }

    async fn purge(&self, purge: &Purge, limit: usize) -> Result<usize> {
        Ok(self.tables.lock().purge(purge, limit))
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}
