//! The rows that a batch touches, as they are loaded and as they will be written.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::blob::BlobWrite;
use crate::{Change, Key, Timestamp};

/// The most dependents that the commit of their object wakes itself. Of more, the driver wakes this
/// many per commit, so that no commit grows with the graph.
pub const DEPENDENTS_AT_ONCE: usize = 500;

const DEPENDENTS: &str = "dependents";

/// The queue row that stands for waking the dependents of an object, in pages.
pub fn dependents_row(of: &Key) -> Key {
    Key::new(DEPENDENTS, &format!("{}:{}", of.kind(), of.id()))
}

/// The object whose dependents this queue row stands for.
pub fn dependents_of(row: &Key) -> Option<Key> {
    let (kind, id) = row.id().split_once(':').filter(|_| row.kind() == DEPENDENTS)?;
    Some(Key::new(kind, id))
}

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
    pub blobs: BTreeSet<(Key, String)>,
    pub cursors: BTreeSet<String>,
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
            touched.cursors.extend(change.cursor.iter().map(|cursor| cursor.name.clone()));
            touched.blobs.extend(change.blobs.iter().filter_map(|blob| match blob {
                BlobWrite::Put { key, name, .. } => Some((key.clone(), name.clone())),
                BlobWrite::Remove { .. } => None,
            }));
            if let Some(write) = &change.write {
                let key = &write.object.key;
                touched.objects.insert(key.clone());
                if change.wake_dependents {
                    touched.dependents_of.insert(key.clone());
                    touched.queue.insert(dependents_row(key));
                }
                if change.wake_dependencies {
                    touched.dependencies_of.insert(key.clone());
                }
                // A later change of the batch may wake the ends of a new edge.
                if let Some(depends_on) = &change.depends_on {
                    touched.queue.insert(key.clone());
                    touched.queue.extend(depends_on.iter().map(|to| to.key.clone()));
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

/// The lease after `holder` requested it; `None` while another holder has it. The fence increases
/// whenever the lease changes hands or had expired.
pub fn take_lease(
    was: Option<&Lease>,
    holder: &str,
    now: Timestamp,
    ttl: Duration,
) -> Option<Lease> {
    let fence = match was {
        None => 1,
        Some(lease) if lease.until > now && lease.holder == holder => lease.fence,
        Some(lease) if lease.until > now => return None,
        Some(lease) => lease.fence + 1,
    };
    Some(Lease { holder: holder.into(), fence, until: now.plus(ttl) })
}
