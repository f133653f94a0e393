//! Rows in the order of their changes, for subscribers that ask what changed since a sequence number.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use tokio::sync::watch;

use super::Row;
use super::columns::{Columns, StringTable};

/// Names a feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FeedKey {
    pub kind: String,
    pub audience: Audience,
}

/// Who reads a feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Audience {
    Org(String),
    /// The agent of a cluster.
    Agent(String),
}

impl FeedKey {
    pub fn org(kind: &str, org: &str) -> FeedKey {
        FeedKey { kind: kind.into(), audience: Audience::Org(org.into()) }
    }

    pub fn agent(kind: &str, cluster: &str) -> FeedKey {
        FeedKey { kind: kind.into(), audience: Audience::Agent(cluster.into()) }
    }
}

/// The instances of an organisation or of an agent, in the order of their changes.
pub(super) struct Feed {
    /// Also in the order of their names, if they are listed and searched.
    pub by_name: BTreeSet<ByName>,
    by_seq: BTreeSet<BySeq>,
    /// Removed ids, with the sequence number of the event; the oldest are dropped.
    gone: VecDeque<(i64, String)>,
    /// Removals at or before this number have been dropped.
    floor: i64,
    pub changed_at: watch::Sender<i64>,
}

/// How many removals a feed keeps.
const GONE_MAX: usize = 1_000;

impl Feed {
    pub fn new(seq: i64) -> Feed {
        Feed {
            by_name: BTreeSet::new(),
            by_seq: BTreeSet::new(),
            gone: VecDeque::new(),
            floor: seq,
            changed_at: watch::Sender::new(seq),
        }
    }

    /// The sequence number of the newest change.
    pub fn newest(&self) -> i64 {
        *self.changed_at.borrow()
    }

    /// Inserts a row that is listed and searched.
    pub fn insert_listed(&mut self, row: &Arc<Row>, strings: &mut StringTable) {
        let columns = Columns::new(&row.instance, strings);
        self.by_name.insert(ByName { columns, row: row.clone() });
        self.insert(row);
    }

    pub fn insert(&mut self, row: &Arc<Row>) {
        self.by_seq.insert(BySeq(row.clone()));
        self.changed_at.send_replace(row.seq);
    }

    pub fn remove(&mut self, row: &Arc<Row>) {
        let columns = Columns::only_name(&row.instance.name);
        self.by_name.remove(&ByName { columns, row: row.clone() });
        self.by_seq.remove(&BySeq(row.clone()));
    }

    /// Whether a listed instance has this name.
    pub fn has_name(&self, name: &str) -> bool {
        let cut = Columns::only_name(name);
        let from = self.by_name.range::<str, _>((Included(cut.name()), Unbounded));
        let mut same = from.take_while(|one| one.columns.name() == cut.name());
        same.any(|one| one.row.instance.name == name)
    }

    pub fn record_removal(&mut self, id: &str, seq: i64) {
        self.gone.push_back((seq, id.into()));
        if self.gone.len() > GONE_MAX {
            self.floor = self.gone.pop_front().map_or(self.floor, |(seq, _)| seq);
        }
        self.changed_at.send_replace(seq);
    }
}

/// A row next to its columns, so that a search over many rows touches little memory.
pub(super) struct ByName {
    pub columns: Columns,
    pub row: Arc<Row>,
}

/// By the name alone, so that a range finds all rows of one name.
impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.columns.name()
    }
}

pub(super) struct BySeq(pub Arc<Row>);

impl BySeq {
    fn key(&self) -> (i64, &str) {
        (self.0.seq, &self.0.instance.id)
    }
}

impl PartialEq for BySeq {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for BySeq {}

impl PartialOrd for BySeq {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BySeq {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        let names = self.columns.name().cmp(other.columns.name());
        names.then_with(|| self.row.instance.id.cmp(&other.row.instance.id))
    }
}

/// What changed since a sequence number.
#[derive(Debug, Default)]
pub struct Delta {
    pub seq: i64,
    /// Everything, because removals since then have been dropped.
    pub full: bool,
    pub changed: Vec<Arc<Row>>,
    pub gone: Vec<String>,
}

/// Returns everything in a feed, or what changed after a sequence number.
pub(super) fn delta(feed: Option<&Feed>, after: Option<i64>, seq: i64) -> Delta {
    let Some(feed) = feed else {
        return Delta { seq, full: true, ..Delta::default() };
    };
    match after {
        // A number from the future belongs to another store.
        Some(after) if after >= feed.floor && after <= seq => {
            let changed = feed.by_seq.iter().rev().take_while(|row| row.0.seq > after);
            let mut changed: Vec<_> = changed.map(|row| row.0.clone()).collect();
            changed.reverse();
            let gone = feed.gone.iter().filter(|(at, _)| *at > after).map(|(_, id)| id.clone());
            Delta { seq, full: false, changed, gone: gone.collect() }
        }
        _ => {
            let changed = feed.by_seq.iter().map(|one| one.0.clone()).collect();
            Delta { seq, full: true, changed, gone: Vec::new() }
        }
    }
}
