//! Everything of ours on the cluster, as the API server tells of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kernel::{Error, Result};
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::told::{AGENT, INSTANCE};
use crate::ports::kubernetes::{Cluster, Name};

/// How long the first list of a kind may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Eyes {
    cluster: Cluster,
    selector: String,
    seen: Arc<Seen>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct Seen {
    inner: Mutex<Inner>,
    /// Something is in `changed`, or a kind was listed.
    bell: Notify,
    listed: Notify,
}

#[derive(Default)]
struct Inner {
    objects: HashMap<Name, Value>,
    /// Instances of which something changed.
    changed: BTreeSet<String>,
    watched: HashSet<GroupVersionKind>,
    /// Kinds whose first list is complete: what is not there does not exist.
    complete: HashSet<GroupVersionKind>,
}

impl Eyes {
    pub fn new(cluster: Cluster, id: &str, tasks: TaskTracker, stop: CancellationToken) -> Eyes {
        Eyes { cluster, selector: format!("{AGENT}={id}"), seen: Arc::default(), tasks, stop }
    }

    /// Waits for instances of which something changed.
    pub async fn changed(&self) -> BTreeSet<String> {
        loop {
            let changed = std::mem::take(&mut self.seen.inner.lock().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.seen.bell.notified().await;
        }
    }

    /// Watches objects of a kind from now on; returns when those that are there are known.
    pub async fn watch(&self, name: &Name) -> Result<()> {
        let kind = name.kind();
        if self.seen.inner.lock().complete.contains(&kind) {
            return Ok(());
        }
        let resource = self.cluster.resource(name).await?;
        if self.seen.inner.lock().watched.insert(kind.clone()) {
            let config = watcher::Config::default().labels(&self.selector);
            let (api, seen) = (self.cluster.all(&resource), self.seen.clone());
            let (stop, of) = (self.stop.clone(), kind.clone());
            self.tasks
                .spawn(async move { stop.run_until_cancelled(seen.follow(api, of, config)).await });
        }
        let complete = async {
            loop {
                let listed = self.seen.listed.notified();
                if self.seen.inner.lock().complete.contains(&kind) {
                    return;
                }
                listed.await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, complete).await;
        waited.map_err(|error| {
            Error::unavailable(format!("Kubernetes ({} objects)", kind.kind), error)
        })
    }

    pub fn get(&self, name: &Name) -> Option<Value> {
        self.seen.inner.lock().objects.get(name).cloned()
    }

    /// What we wrote, unless the watch has told of something newer.
    pub fn wrote(&self, name: Name, object: Value) {
        let mut inner = self.seen.inner.lock();
        let newer = inner.objects.get(&name).is_none_or(|known| version(known) < version(&object));
        if newer {
            inner.objects.insert(name, object);
        }
    }

    /// The pods of an instance.
    pub fn pods(&self, instance: &str) -> Vec<Value> {
        let inner = self.seen.inner.lock();
        let pods = inner.objects.iter().filter(|(name, object)| {
            name.kind == "Pod" && object["metadata"]["labels"][INSTANCE] == instance
        });
        pods.map(|(_, pod)| pod.clone()).collect()
    }
}

impl Seen {
    async fn follow(
        &self,
        api: kube::Api<DynamicObject>,
        kind: GroupVersionKind,
        config: watcher::Config,
    ) {
        let mut stream = std::pin::pin!(watcher(api, config).default_backoff());
        let mut listed: HashSet<Name> = HashSet::new();
        while let Some(event) = stream.next().await {
            match event {
                Err(error) => tracing::debug!(kind = kind.kind, %error, "a watch was interrupted"),
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    if let Some((name, object)) = read(object) {
                        listed.insert(name.clone());
                        self.put(name, object);
                    }
                }
                Ok(watcher::Event::InitDone) => self.complete(&kind, &listed),
                Ok(watcher::Event::Apply(object)) => {
                    if let Some((name, object)) = read(object) {
                        self.put(name, object);
                    }
                }
                Ok(watcher::Event::Delete(object)) => {
                    if let Some((name, object)) = read(object) {
                        let mut inner = self.inner.lock();
                        inner.objects.remove(&name);
                        inner.changed.extend(owner(&object));
                        drop(inner);
                        self.bell.notify_one();
                    }
                }
            }
        }
    }

    fn put(&self, name: Name, object: Value) {
        let id = owner(&object);
        let mut inner = self.inner.lock();
        inner.objects.insert(name, object);
        inner.changed.extend(id);
        drop(inner);
        self.bell.notify_one();
    }

    /// What the list did not name is gone.
    fn complete(&self, kind: &GroupVersionKind, listed: &HashSet<Name>) {
        let mut inner = self.inner.lock();
        let stale = |name: &&Name| name.kind() == *kind && !listed.contains(name);
        let gone: Vec<Name> = inner.objects.keys().filter(stale).cloned().collect();
        for name in gone {
            let id = inner.objects.remove(&name).and_then(|object| owner(&object));
            inner.changed.extend(id);
        }
        inner.complete.insert(kind.clone());
        drop(inner);
        self.bell.notify_one();
        self.listed.notify_waiters();
    }
}

/// The instance that an object belongs to.
fn owner(object: &Value) -> Option<String> {
    object["metadata"]["labels"][INSTANCE].as_str().map(str::to_owned)
}

fn read(object: DynamicObject) -> Option<(Name, Value)> {
    let mut object = serde_json::to_value(object).ok()?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // The longest part, and of no use here.
        metadata.remove("managedFields");
    }
    Some((Name::of(&object).ok()?, object))
}

/// Rises with every write.
fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or(0)
}
