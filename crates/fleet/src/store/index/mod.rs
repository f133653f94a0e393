//! An in-memory index of all live instances and clusters, fed by the event log. It serves lists,
//! searches, agents' lists and watches at a cost that does not depend on the store, and after
//! [`Index::catch_up`] is as new as the last commit.

mod columns;
mod feed;
mod lifecycle_counters;
mod rows;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use kernel::change::Wake;
use kernel::informer::Informer;
use kernel::{Error, Key, Object, Result, Timestamp};
use parking_lot::RwLock;
use tokio::sync::watch;

use columns::{CompiledFilter, StringTable};
pub use feed::{Audience, Delta, FeedKey};
use feed::{ByName, Feed, delta};
pub use lifecycle_counters::{LifecycleCounters, Operation, OperationCount};
use rows::Rows;

use crate::model::account::{self, Account};
use crate::model::catalogue::Catalogue;
use crate::model::catalogue_load;
use crate::model::cluster::{self, Candidate, Cluster};
use crate::model::instance::{Instance, Interners, Phase};
use crate::model::search::Filter;

/// An instance, and the sequence number of the event that last changed it.
#[derive(Debug)]
pub struct Row {
    pub instance: Instance,
    pub seq: i64,
}

#[derive(Default)]
pub struct Index {
    inner: RwLock<Inner>,
    informer: OnceLock<Arc<Informer>>,
    /// Operations since this process started.
    pub counters: LifecycleCounters,
    /// The newest request to load the catalogue's files.
    catalogue_requests: watch::Sender<i64>,
}

#[derive(Default)]
struct Inner {
    rows: Rows,
    interners: Interners,
    feeds: HashMap<FeedKey, Feed>,
    clusters: BTreeMap<String, Arc<Cluster>>,
    accounts: BTreeMap<String, Arc<Account>>,
    /// Units by cluster and instance type.
    used: HashMap<String, BTreeMap<String, i64>>,
    /// Units by kind, cloud, region and instance type.
    regions: HashMap<String, i64>,
    counts: BTreeMap<(String, Phase), i64>,
    /// Instances that wait for a cluster or for a version.
    waiting: BTreeSet<Key>,
    strings: StringTable,
    /// Instances by kind, cluster and status.
    placed: BTreeMap<(String, String, Phase), i64>,
}

/// The instances that a caller may see.
#[derive(Debug, Clone)]
pub enum Scope<'a> {
    Org(&'a str),
    Owner(&'a str),
    All,
}

/// A page of a list, and the length of the whole list.
pub struct ListPage {
    pub rows: Vec<Arc<Row>>,
    pub total: usize,
}

impl Index {
    pub fn attach(&self, informer: Arc<Informer>) {
        let _ = self.informer.set(informer);
    }

    /// Waits until everything that was committed before is in the index.
    pub async fn catch_up(&self) -> Result<()> {
        match self.informer.get() {
            Some(informer) => informer.catch_up().await,
            None => Err(Error::unavailable("the index", "it is being loaded")),
        }
    }

    /// Waits until the event of this sequence number, and all before it, are in the index.
    pub async fn wait_for_seq(&self, seq: i64) {
        futures::future::OptionFuture::from(self.informer.get().map(|m| m.wait_for_seq(seq))).await;
    }

    pub fn seq(&self) -> i64 {
        self.informer.get().map_or(0, |informer| informer.seq())
    }

    /// Removes everything but these keys.
    pub fn retain(&self, keys: &HashSet<Key>, seq: i64) {
        let mut inner = self.inner.write();
        inner.clusters.retain(|id, _| keys.contains(&cluster::key(id)));
        inner.accounts.retain(|id, _| keys.contains(&account::key(id)));
        let vanished = |row: &&Arc<Row>| !keys.contains(&row.instance.key());
        let vanished: Vec<Arc<Row>> = inner.rows.all().filter(vanished).cloned().collect();
        for old in vanished {
            inner.rows.remove(&old.instance.kind, &old.instance.id);
            inner.unlink(Some(&old), None, seq);
        }
    }

    /// Applies an object of an event or of the initial load.
    pub fn apply(&self, object: &Object, seq: i64) {
        let applied = match object.key.kind() {
            cluster::KIND => self.apply_cluster(object),
            account::KIND => self.apply_account(object),
            catalogue_load::KIND => {
                self.catalogue_requests.send_if_modified(|newest| {
                    let newer = object.generation > *newest;
                    *newest = object.generation.max(*newest);
                    newer
                });
                Ok(())
            }
            _ => self.apply_instance(object, seq),
        };
        if let Err(error) = applied {
            tracing::error!(key = %object.key, %error, "skipping an object that cannot be decoded");
        }
    }

    fn apply_cluster(&self, object: &Object) -> Result<()> {
        let cluster = Cluster::from_object(object)?;
        let mut inner = self.inner.write();
        if inner.clusters.get(&cluster.id).is_some_and(|old| old.revision >= cluster.revision) {
            return Ok(());
        }
        let old = inner.clusters.remove(&cluster.id);
        let new = object.deleted_at.is_none().then(|| Arc::new(cluster));
        self.counters.cluster(old.as_deref(), new.as_deref());
        inner.clusters.extend(new.map(|new| (new.id.clone(), new)));
        Ok(())
    }

    fn apply_account(&self, object: &Object) -> Result<()> {
        let account = Account::from_object(object)?;
        let mut inner = self.inner.write();
        if inner.accounts.get(&account.id).is_some_and(|old| old.revision >= account.revision) {
            return Ok(());
        }
        if object.deleted_at.is_some() {
            inner.accounts.remove(&account.id);
        } else {
            inner.accounts.insert(account.id.clone(), Arc::new(account));
        }
        Ok(())
    }

    fn apply_instance(&self, object: &Object, seq: i64) -> Result<()> {
        if object.deleted_at.is_some() {
            let mut inner = self.inner.write();
            let old = inner.rows.remove(object.key.kind(), object.key.id());
            self.counters.instance(old.as_ref().map(|old| &old.instance), None);
            inner.unlink(old.as_ref(), None, seq);
            return Ok(());
        }
        let mut instance = Instance::from_object(object)?;
        let mut inner = self.inner.write();
        let old = inner.rows.get(&instance.kind, &instance.id).cloned();
        if old.as_ref().is_some_and(|old| old.instance.revision >= instance.revision) {
            return Ok(());
        }
        inner.interners.intern(&mut instance);
        let row = Arc::new(Row { instance, seq });
        self.counters.instance(old.as_ref().map(|old| &old.instance), Some(&row.instance));
        inner.unlink(old.as_ref(), Some(&row), seq);
        inner.link(&row);
        inner.rows.insert(row);
        Ok(())
    }

    /// Notifies of requests to load the catalogue's files.
    pub fn catalogue_requests(&self) -> watch::Receiver<i64> {
        self.catalogue_requests.subscribe()
    }

    pub fn get(&self, kind: &str, id: &str) -> Option<Arc<Row>> {
        self.inner.read().rows.get(kind, id).cloned()
    }

    pub fn cluster(&self, id: &str) -> Option<Arc<Cluster>> {
        self.inner.read().clusters.get(id).cloned()
    }

    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.inner.read().clusters.values().cloned().collect()
    }

    pub fn account(&self, id: &str) -> Option<Arc<Account>> {
        self.inner.read().accounts.get(id).cloned()
    }

    /// An organisation's service accounts, oldest first.
    pub fn accounts(&self, org: &str) -> Vec<Arc<Account>> {
        let inner = self.inner.read();
        let mut found: Vec<_> = inner.accounts.values().filter(|a| a.org == org).cloned().collect();
        found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        found
    }

    /// Units of a type that a cluster holds.
    pub fn used(&self, cluster: &str, instance_type: &str) -> i64 {
        self.inner.read().used(cluster, instance_type)
    }

    /// Units of all types that a cluster holds.
    pub fn used_total(&self, cluster: &str) -> i64 {
        self.inner.read().used_total(cluster)
    }

    /// All clusters with the units that they hold: of this type, or of all types where one limit
    /// covers all.
    pub fn candidates(&self, instance_type: &str) -> Vec<Candidate> {
        let inner = self.inner.read();
        let each = |cluster: &Arc<Cluster>| Candidate {
            used: match cluster.spec.limit {
                Some(_) => inner.used_total(&cluster.id),
                None => inner.used(&cluster.id, instance_type),
            },
            cluster: cluster.clone(),
        };
        inner.clusters.values().map(each).collect()
    }

    /// Units of a type that a region holds, on the fleet's own clusters.
    pub fn used_in_region(
        &self,
        kind: &str,
        cloud: &str,
        region: &str,
        instance_type: &str,
    ) -> i64 {
        let key = format!("{kind}/{cloud}/{region}/{instance_type}");
        self.inner.read().regions.get(&key).copied().unwrap_or(0)
    }

    pub fn counts(&self) -> BTreeMap<(String, Phase), i64> {
        self.inner.read().counts.clone()
    }

    /// Instances by kind, cluster and phase, without zeros.
    pub fn placed(&self) -> BTreeMap<(String, String, Phase), i64> {
        self.inner.read().placed.clone()
    }

    /// All instances of a cluster, also those that its agent does not get.
    pub fn on_cluster(&self, cluster: &str) -> Vec<Arc<Row>> {
        let inner = self.inner.read();
        let rows = inner.rows.all().filter(|row| row.instance.status.cluster_id == cluster);
        rows.cloned().collect()
    }

    /// The instances whose cluster is gone, unless their kind is unknown.
    pub fn evicted(&self, catalogue: &Catalogue) -> Vec<Arc<Row>> {
        let inner = self.inner.read();
        let evicted = |row: &&Arc<Row>| {
            let id = &row.instance.status.cluster_id;
            !id.is_empty()
                && !inner.clusters.contains_key(id)
                && catalogue.kind(&row.instance.kind).is_some()
        };
        inner.rows.all().filter(evicted).cloned().collect()
    }

    /// Whether an organisation has an instance of this name.
    pub fn has_name(&self, kind: &str, org: &str, name: &str) -> bool {
        let inner = self.inner.read();
        inner.feeds.get(&FeedKey::org(kind, org)).is_some_and(|feed| feed.has_name(name))
    }

    /// The page of a kind's instances that match, in order.
    pub fn list(
        &self,
        kind: &str,
        scope: &Scope<'_>,
        filter: Option<&Filter>,
        order: &crate::model::order::Order,
        (skip, take): (usize, usize),
    ) -> ListPage {
        let inner = self.inner.read();
        let feed = |org: &str| inner.feeds.get(&FeedKey::org(kind, org));
        let own = |row: &Row| match scope {
            Scope::Owner(owner) => row.instance.owner == *owner,
            _ => true,
        };
        let compiled = filter.map(|filter| CompiledFilter::compile(filter, &inner.strings));
        let fits =
            |one: &ByName| compiled.as_ref().is_none_or(|compiled| compiled.fits(&one.columns));
        let matches = |one: &ByName| fits(one) && own(&one.row);
        let one = match scope {
            Scope::Org(org) => Some(feed(org)),
            Scope::Owner(_) => Some(feed("")),
            Scope::All => None,
        };
        if let (Some(feed), true) = (one, order.is_by_name()) {
            let Some(feed) = feed else { return ListPage { rows: Vec::new(), total: 0 } };
            if filter.is_none() && !matches!(scope, Scope::Owner(_)) {
                let rows = feed.by_name.iter().skip(skip).take(take).map(|one| one.row.clone());
                return ListPage { rows: rows.collect(), total: feed.by_name.len() };
            }
            let (mut rows, mut total) = (Vec::new(), 0);
            for one in feed.by_name.iter().filter(|one| matches(one)) {
                if total >= skip && rows.len() < take {
                    rows.push(one.row.clone());
                }
                total += 1;
            }
            return ListPage { rows, total };
        }
        let feeds: Vec<&Feed> = match one {
            Some(feed) => feed.into_iter().collect(),
            // Only the feeds of organisations have rows by name.
            None => {
                inner.feeds.iter().filter(|(key, _)| key.kind == kind).map(|(_, f)| f).collect()
            }
        };
        let all = feeds.into_iter().flat_map(|feed| &feed.by_name).filter(|one| matches(one));
        let mut all: Vec<&Arc<Row>> = all.map(|one| &one.row).collect();
        let total = all.len();
        let compare = |a: &&Arc<Row>, b: &&Arc<Row>| order.compare(&a.instance, &b.instance);
        let end = skip.saturating_add(take).min(total);
        if skip >= end {
            return ListPage { rows: Vec::new(), total };
        }
        // Only the requested page needs to be in order.
        if end < total {
            all.select_nth_unstable_by(end, compare);
        }
        all.truncate(end);
        all.sort_unstable_by(compare);
        ListPage { rows: all[skip..].iter().map(|row| (*row).clone()).collect(), total }
    }

    /// Everything in a feed, or what changed after `after`.
    pub fn delta(&self, feed: &FeedKey, after: Option<i64>) -> Delta {
        delta(self.inner.read().feeds.get(feed), after, self.seq())
    }

    /// Notifies of changes in a feed.
    pub fn changes(&self, feed: &FeedKey) -> watch::Receiver<i64> {
        let mut inner = self.inner.write();
        let seq = self.seq();
        let feed = inner.feeds.entry(feed.clone());
        feed.or_insert_with(|| Feed::new(seq)).changed_at.subscribe()
    }

    /// The sequence number of the newest change in a feed.
    pub fn newest(&self, feed: &FeedKey) -> i64 {
        self.inner.read().feeds.get(feed).map_or(0, Feed::newest)
    }

    /// Wakes the instances that wait for a cluster or for a version, unless their kind is unknown.
    pub fn wakes_of_waiting(&self, catalogue: &Catalogue, now: Timestamp) -> Vec<Wake> {
        let inner = self.inner.read();
        let known = inner.waiting.iter().filter(|key| catalogue.kind(key.kind()).is_some());
        let rows = known.filter_map(|key| inner.rows.get(key.kind(), key.id()));
        rows.map(|row| row.instance.wake(now)).collect()
    }

    /// Visits all instances of a kind.
    pub fn each(&self, kind: &str, mut visit: impl FnMut(&Instance)) {
        let inner = self.inner.read();
        inner.rows.of_kind(kind).for_each(|row| visit(&row.instance));
    }
}

impl Inner {
    fn used(&self, cluster: &str, instance_type: &str) -> i64 {
        self.used.get(cluster).and_then(|held| held.get(instance_type)).copied().unwrap_or(0)
    }

    fn used_total(&self, cluster: &str) -> i64 {
        self.used.get(cluster).map_or(0, |held| held.values().sum())
    }

    fn link(&mut self, row: &Arc<Row>) {
        let instance = &row.instance;
        self.count(instance, 1);
        if is_waiting(instance) {
            self.waiting.insert(instance.key());
        }
        for key in feeds_of(instance) {
            let is_listed = matches!(key.audience, Audience::Org(_));
            let feed = self.feeds.entry(key).or_insert_with(|| Feed::new(row.seq - 1));
            if is_listed {
                feed.insert_listed(row, &mut self.strings);
            } else {
                feed.insert(row);
            }
        }
    }

    /// Removes the old row from the feeds that do not keep it, and records the removal.
    fn unlink(&mut self, old: Option<&Arc<Row>>, new: Option<&Arc<Row>>, seq: i64) {
        let Some(old) = old else { return };
        self.count(&old.instance, -1);
        self.waiting.remove(&old.instance.key());
        let kept: Vec<FeedKey> = new.into_iter().flat_map(|new| feeds_of(&new.instance)).collect();
        for key in feeds_of(&old.instance) {
            if let Some(feed) = self.feeds.get_mut(&key) {
                feed.remove(old);
                if !kept.contains(&key) {
                    feed.record_removal(&old.instance.id, seq);
                }
            }
        }
    }

    fn count(&mut self, instance: &Instance, by: i64) {
        *self.counts.entry((instance.kind.clone(), instance.phase)).or_default() += by;
        let spec = &instance.spec;
        if spec.own_cluster_id.is_empty() {
            let (cloud, region, ty) = (&spec.cloud_provider, &spec.region, &spec.instance_type);
            let key = format!("{}/{cloud}/{region}/{ty}", instance.kind);
            *self.regions.entry(key).or_default() += by * spec.units;
        }
        let cluster = &instance.status.cluster_id;
        if !cluster.is_empty() {
            let key = (instance.kind.clone(), cluster.clone(), instance.phase);
            match self.placed.entry(key) {
                Entry::Vacant(none) => {
                    none.insert(by);
                }
                Entry::Occupied(last) if *last.get() + by == 0 => drop(last.remove()),
                Entry::Occupied(mut some) => *some.get_mut() += by,
            }
        }
        if !cluster.is_empty() && instance.phase != Phase::Deleting {
            let held = self.used.entry(cluster.clone()).or_default();
            *held.entry(spec.instance_type.clone()).or_default() += by * spec.units;
        }
    }
}

/// Whether it waits for a cluster or for a version.
fn is_waiting(instance: &Instance) -> bool {
    let unplaced = instance.status.cluster_id.is_empty();
    instance.phase == Phase::Accepted || instance.phase == Phase::Provisioning && unplaced
}

/// The feeds that have an instance: its organisation's, and the one of the agent that gets it.
fn feeds_of(instance: &Instance) -> impl Iterator<Item = FeedKey> {
    let visible = instance.phase.is_visible_to_agent() && instance.status.is_on_data_plane();
    let cluster = Some(&instance.status.cluster_id).filter(|id| visible && !id.is_empty());
    let org = FeedKey::org(&instance.kind, &instance.org);
    [org].into_iter().chain(cluster.map(|id| FeedKey::agent(&instance.kind, id)))
}
