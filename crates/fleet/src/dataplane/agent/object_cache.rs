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

use super::desired::{AGENT, INSTANCE};
use crate::ports::kubernetes::{KubeClient, ObjectRef};

/// How long the first list of a kind may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

pub struct ObjectCache {
    cluster: KubeClient,
    selector: String,
    inner: Arc<CacheInner>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct CacheInner {
    state: Mutex<CacheState>,
    /// Something is in `changed`, or a kind was listed.
    changes: Notify,
    listed: Notify,
}

#[derive(Default)]
struct CacheState {
    objects: HashMap<ObjectRef, Value>,
    /// Instances of which something changed.
    changed: BTreeSet<String>,
    watched: HashSet<GroupVersionKind>,
    /// Kinds whose first list is complete: what is not there does not exist.
    complete: HashSet<GroupVersionKind>,
}

impl ObjectCache {
    pub fn new(
        cluster: KubeClient,
        id: &str,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> ObjectCache {
        ObjectCache {
            cluster,
            selector: format!("{AGENT}={id}"),
            inner: Arc::default(),
            tasks,
            stop,
        }
    }

    /// Waits for instances of which something changed.
    pub async fn changed(&self) -> BTreeSet<String> {
        loop {
            let changed = std::mem::take(&mut self.inner.state.lock().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.inner.changes.notified().await;
        }
    }

    /// Watches objects of a kind from now on; returns when those that are there are known.
    pub async fn watch(&self, name: &ObjectRef) -> Result<()> {
        let kind = name.kind();
        if self.inner.state.lock().complete.contains(&kind) {
            return Ok(());
        }
        let resource = self.cluster.resource(name).await?;
        if self.inner.state.lock().watched.insert(kind.clone()) {
            let config = watcher::Config::default().labels(&self.selector);
            let (api, inner) = (self.cluster.all(&resource), self.inner.clone());
            let (stop, of) = (self.stop.clone(), kind.clone());
            self.tasks.spawn(async move {
                stop.run_until_cancelled(inner.follow(api, of, config)).await
            });
        }
        let complete = async {
            loop {
                let listed = self.inner.listed.notified();
                if self.inner.state.lock().complete.contains(&kind) {
                    return;
                }
                listed.await;
            }
        };
        let waited = tokio::time::timeout(LIST_TIMEOUT, complete).await;
        waited.map_err(|error| {
            Error::unavailable(format!("Kubernetes ({} objects)", kind.kind), error)
        })
    }

    pub fn get(&self, name: &ObjectRef) -> Option<Value> {
        self.inner.state.lock().objects.get(name).cloned()
    }

    /// What we wrote, unless the watch has told of something newer.
    pub fn insert_applied(&self, name: ObjectRef, object: Value) {
        let mut state = self.inner.state.lock();
        let newer = state.objects.get(&name).is_none_or(|known| version(known) < version(&object));
        if newer {
            state.objects.insert(name, object);
        }
    }

    /// The pods of an instance.
    pub fn pods(&self, instance: &str) -> Vec<Value> {
        let state = self.inner.state.lock();
        let pods = state.objects.iter().filter(|(name, object)| {
            name.kind == "Pod" && object["metadata"]["labels"][INSTANCE] == instance
        });
        pods.map(|(_, pod)| pod.clone()).collect()
    }
}

impl CacheInner {
    async fn follow(
        &self,
        api: kube::Api<DynamicObject>,
        kind: GroupVersionKind,
        config: watcher::Config,
    ) {
        let mut stream = std::pin::pin!(watcher(api, config).default_backoff());
        let mut listed: HashSet<ObjectRef> = HashSet::new();
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
                        let mut state = self.state.lock();
                        state.objects.remove(&name);
                        state.changed.extend(owner(&object));
                        drop(state);
                        self.changes.notify_one();
                    }
                }
            }
        }
    }

    fn put(&self, name: ObjectRef, object: Value) {
        let id = owner(&object);
        let mut state = self.state.lock();
        state.objects.insert(name, object);
        state.changed.extend(id);
        drop(state);
        self.changes.notify_one();
    }

    /// What the list did not name is gone.
    fn complete(&self, kind: &GroupVersionKind, listed: &HashSet<ObjectRef>) {
        let mut state = self.state.lock();
        let stale = |name: &&ObjectRef| name.kind() == *kind && !listed.contains(name);
        let gone: Vec<ObjectRef> = state.objects.keys().filter(stale).cloned().collect();
        for name in gone {
            let id = state.objects.remove(&name).and_then(|object| owner(&object));
            state.changed.extend(id);
        }
        state.complete.insert(kind.clone());
        drop(state);
        self.changes.notify_one();
        self.listed.notify_waiters();
    }
}

/// The instance that an object belongs to.
fn owner(object: &Value) -> Option<String> {
    object["metadata"]["labels"][INSTANCE].as_str().map(str::to_owned)
}

fn read(object: DynamicObject) -> Option<(ObjectRef, Value)> {
    let mut object = serde_json::to_value(object).ok()?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // The longest part, and of no use here.
        metadata.remove("managedFields");
    }
    Some((ObjectRef::from_manifest(&object).ok()?, object))
}

/// Rises with every write.
fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or(0)
}
