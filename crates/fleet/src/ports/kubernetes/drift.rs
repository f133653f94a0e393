//! Watches what we put on clusters: whoever deletes or edits it makes its cluster be looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use kernel::Result;
use kube::runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent_manifests::CLUSTER_LABEL;
use super::{KubeClient, ObjectRef, Resource, covers};

pub struct DriftWatcher {
    watched: Mutex<HashMap<String, Watched>>,
    /// Clusters on which something is not as it should be.
    drifted: mpsc::Sender<String>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Watched {
    wanted: Arc<Vec<Value>>,
    drifted: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl DriftWatcher {
    pub fn new(
        drifted: mpsc::Sender<String>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> DriftWatcher {
        DriftWatcher { watched: Mutex::default(), drifted, tasks, stop }
    }

    /// Whether these were put there, are watched, and nobody has touched them.
    pub fn matches(&self, id: &str, wanted: &[Value]) -> bool {
        let watched = self.watched.lock();
        watched.get(id).is_some_and(|watched| {
            watched.wanted.as_slice() == wanted && !watched.drifted.load(Ordering::Acquire)
        })
    }

    /// Puts everything on a cluster, and watches it from then on.
    pub async fn apply_all(
        &self,
        id: &str,
        cluster: &KubeClient,
        wanted: Vec<Value>,
    ) -> Result<()> {
        // Cleared first: what drifts from here on is seen again.
        if let Some(watched) =
            self.watched.lock().get(id).filter(|watched| *watched.wanted == wanted)
        {
            watched.drifted.store(false, Ordering::Release);
        }
        for object in &wanted {
            if let Err(error) = cluster.apply(object).await {
                self.mark_drifted(id);
                return Err(error);
            }
        }
        self.watch(id, cluster, wanted).await
    }

    fn mark_drifted(&self, id: &str) {
        if let Some(watched) = self.watched.lock().get(id) {
            watched.drifted.store(true, Ordering::Release);
        }
    }

    /// Nothing of it is watched any more.
    pub fn unwatch(&self, id: &str) {
        if let Some(watched) = self.watched.lock().remove(id) {
            watched.stop.cancel();
        }
    }

    async fn watch(&self, id: &str, cluster: &KubeClient, wanted: Vec<Value>) -> Result<()> {
        if self.watched.lock().get(id).is_some_and(|watched| *watched.wanted == wanted) {
            return Ok(());
        }
        let mut kinds: Vec<(Resource, BTreeSet<ObjectRef>)> = Vec::new();
        for object in &wanted {
            let name = ObjectRef::from_manifest(object)?;
            let resource = cluster.resource(&name).await?;
            match kinds.iter_mut().find(|(known, _)| known.api == resource.api) {
                Some((_, names)) => drop(names.insert(name)),
                None => kinds.push((resource, [name].into())),
            }
        }
        let wanted = Arc::new(wanted);
        let watched = Watched {
            wanted: wanted.clone(),
            drifted: Arc::default(),
            stop: self.stop.child_token(),
        };
        for (resource, names) in kinds {
            let watch = KindWatch {
                id: id.to_owned(),
                names,
                wanted: wanted.clone(),
                drifted: watched.drifted.clone(),
                drifted_clusters: self.drifted.clone(),
            };
            let (api, stop) = (cluster.all(&resource), watched.stop.clone());
            self.tasks.spawn(async move { stop.run_until_cancelled(watch.follow(api)).await });
        }
        if let Some(old) = self.watched.lock().insert(id.to_owned(), watched) {
            old.stop.cancel();
        }
        Ok(())
    }
}

/// Looks at our objects of one kind on one cluster.
struct KindWatch {
    id: String,
    names: BTreeSet<ObjectRef>,
    wanted: Arc<Vec<Value>>,
    drifted: Arc<AtomicBool>,
    drifted_clusters: mpsc::Sender<String>,
}

impl KindWatch {
    async fn follow(self, api: kube::Api<kube::api::DynamicObject>) {
        let config = watcher::Config::default().labels(&format!("{CLUSTER_LABEL}={}", self.id));
        let stream = watcher(api, config).default_backoff();
        let mut stream = std::pin::pin!(stream);
        let mut missing = BTreeSet::new();
        while let Some(event) = stream.next().await {
            let drift = match event {
                Err(error) => {
                    tracing::debug!(cluster = self.id, %error, "a watch was interrupted");
                    false
                }
                Ok(watcher::Event::Init) => {
                    missing.clone_from(&self.names);
                    false
                }
                Ok(watcher::Event::InitApply(object)) => {
                    let found = serde_json::to_value(object).unwrap_or_default();
                    if let Ok(name) = ObjectRef::from_manifest(&found) {
                        missing.remove(&name);
                    }
                    self.differs(&found)
                }
                Ok(watcher::Event::InitDone) => !missing.is_empty(),
                Ok(watcher::Event::Apply(object)) => {
                    self.differs(&serde_json::to_value(object).unwrap_or_default())
                }
                Ok(watcher::Event::Delete(object)) => {
                    let gone = serde_json::to_value(object).unwrap_or_default();
                    ObjectRef::from_manifest(&gone).is_ok_and(|name| self.names.contains(&name))
                }
            };
            if drift && !self.drifted.swap(true, Ordering::AcqRel) {
                let _ = self.drifted_clusters.send(self.id.clone()).await;
            }
        }
    }

    fn differs(&self, found: &Value) -> bool {
        let Ok(name) = ObjectRef::from_manifest(found) else { return false };
        let wanted = self
            .wanted
            .iter()
            .find(|wanted| ObjectRef::from_manifest(wanted).is_ok_and(|it| it == name));
        // One that is going cannot be mended until it is gone.
        let going = !found["metadata"]["deletionTimestamp"].is_null();
        !going && wanted.is_some_and(|wanted| !covers(found, wanted))
    }
}
