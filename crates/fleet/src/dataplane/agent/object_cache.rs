//! A cache of our objects on the cluster, fed by watches.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kernel::{Error, Result};
use kube::core::GroupVersionKind;
use kubernetes::{Revision, WatchEvent};
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
    /// Notified when `changed` grows.
    changes: Notify,
    listed: Notify,
}

#[derive(Default)]
struct CacheState {
    objects: HashMap<ObjectRef, Value>,
    /// Instances of which something changed.
    changed: BTreeSet<String>,
    watched: HashSet<GroupVersionKind>,
    /// Kinds whose first list is complete: other objects of them do not exist.
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

    /// Starts to watch a kind. Returns when its objects are listed.
    pub async fn watch(&self, name: &ObjectRef) -> Result<()> {
        let kind = name.kind();
        if self.inner.state.lock().complete.contains(&kind) {
            return Ok(());
        }
        let events = self.cluster.watch_kind(name, &self.selector).await?;
        if self.inner.state.lock().watched.insert(kind.clone()) {
            let (stop, inner, of) = (self.stop.clone(), self.inner.clone(), name.clone());
            self.tasks
                .spawn(async move { stop.run_until_cancelled(inner.follow(events, of)).await });
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

    /// Inserts an object that we wrote, unless the watch has reported a newer one.
    pub fn insert_applied(&self, name: ObjectRef, object: Value) {
        let mut state = self.inner.state.lock();
        let newer =
            state.objects.get(&name).is_none_or(|known| revision(known) < revision(&object));
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
    async fn follow(&self, mut events: BoxStream<'static, WatchEvent<Value>>, of: ObjectRef) {
        while let Some(event) = events.next().await {
            match event {
                WatchEvent::Error(error) => {
                    tracing::debug!(kind = of.kind, %error, "watch failed; retrying");
                }
                WatchEvent::Snapshot(objects) => self.replace(&of.kind(), objects),
                WatchEvent::Upserted(object) => self.state.lock().insert(*object),
                WatchEvent::Deleted(gone, ..) => {
                    let (namespace, name) = (&gone.namespace, &gone.name);
                    let name = ObjectRef::new(&of.api_version, &of.kind, namespace, name);
                    self.state.lock().remove(&name);
                }
            }
            self.changes.notify_one();
        }
    }

    /// Objects of the kind that are not listed have been deleted.
    fn replace(&self, kind: &GroupVersionKind, objects: Vec<Value>) {
        let mut state = self.state.lock();
        let names = objects.iter().filter_map(|object| ObjectRef::from_manifest(object).ok());
        let listed: HashSet<ObjectRef> = names.collect();
        let stale = |name: &&ObjectRef| name.kind() == *kind && !listed.contains(name);
        let gone: Vec<ObjectRef> = state.objects.keys().filter(stale).cloned().collect();
        gone.iter().for_each(|name| state.remove(name));
        objects.into_iter().for_each(|object| state.insert(object));
        state.complete.insert(kind.clone());
        drop(state);
        self.listed.notify_waiters();
    }
}

impl CacheState {
    fn insert(&mut self, object: Value) {
        if let Ok(name) = ObjectRef::from_manifest(&object) {
            self.changed.extend(owner(&object));
            self.objects.insert(name, object);
        }
    }

    fn remove(&mut self, name: &ObjectRef) {
        let object = self.objects.remove(name);
        self.changed.extend(object.as_ref().and_then(owner));
    }
}

/// The instance that an object belongs to.
fn owner(object: &Value) -> Option<String> {
    object["metadata"]["labels"][INSTANCE].as_str().map(str::to_owned)
}

fn revision(object: &Value) -> Option<Revision> {
    object["metadata"]["resourceVersion"].as_str().map(Revision::of)
}
