//! Watches the objects that we applied to clusters: deleting or editing one wakes its cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::kubernetes::WatchEvent;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kernel::Result;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent_manifests::CLUSTER_LABEL;
use super::{KubeClient, ObjectRef, covers};

pub struct DriftWatcher {
    watched: Mutex<HashMap<String, Watched>>,
    /// Clusters whose objects drifted.
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

    /// Whether these objects were applied, are watched, and have not drifted.
    pub fn matches(&self, id: &str, wanted: &[Value]) -> bool {
        let watched = self.watched.lock();
        watched.get(id).is_some_and(|watched| {
            watched.wanted.as_slice() == wanted && !watched.drifted.load(Ordering::Acquire)
        })
    }

    /// Applies all objects to a cluster, and watches them from then on.
    pub async fn apply_all(
        &self,
        id: &str,
        cluster: &KubeClient,
        wanted: Vec<Value>,
    ) -> Result<()> {
        // Cleared first, so that drift from here on is detected.
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

    /// Stops watching a cluster.
    pub fn unwatch(&self, id: &str) {
        if let Some(watched) = self.watched.lock().remove(id) {
            watched.stop.cancel();
        }
    }

    async fn watch(&self, id: &str, cluster: &KubeClient, wanted: Vec<Value>) -> Result<()> {
        if self.watched.lock().get(id).is_some_and(|watched| *watched.wanted == wanted) {
            return Ok(());
        }
        let mut kinds: BTreeMap<(String, String), BTreeSet<ObjectRef>> = BTreeMap::new();
        for object in &wanted {
            let name = ObjectRef::from_manifest(object)?;
            let kind = (name.api_version.clone(), name.kind.clone());
            kinds.entry(kind).or_default().insert(name);
        }
        let selector = format!("{CLUSTER_LABEL}={id}");
        let mut watches = Vec::new();
        for names in kinds.into_values() {
            if let Some(name) = names.first() {
                let events = cluster.watch_kind(name, &selector).await?;
                watches.push((names, events));
            }
        }
        let wanted = Arc::new(wanted);
        let watched = Watched {
            wanted: wanted.clone(),
            drifted: Arc::default(),
            stop: self.stop.child_token(),
        };
        for (names, events) in watches {
            let watch = KindWatch {
                id: id.to_owned(),
                names,
                wanted: wanted.clone(),
                drifted: watched.drifted.clone(),
                drifted_clusters: self.drifted.clone(),
            };
            let stop = watched.stop.clone();
            self.tasks.spawn(async move { stop.run_until_cancelled(watch.follow(events)).await });
        }
        if let Some(old) = self.watched.lock().insert(id.to_owned(), watched) {
            old.stop.cancel();
        }
        Ok(())
    }
}

/// The watch of our objects of one kind on one cluster.
struct KindWatch {
    id: String,
    names: BTreeSet<ObjectRef>,
    wanted: Arc<Vec<Value>>,
    drifted: Arc<AtomicBool>,
    drifted_clusters: mpsc::Sender<String>,
}

impl KindWatch {
    async fn follow(self, mut events: BoxStream<'static, WatchEvent<Value>>) {
        while let Some(event) = events.next().await {
            let drift = match event {
                WatchEvent::Error(error) => {
                    tracing::debug!(cluster = self.id, %error, "watch failed; retrying");
                    false
                }
                WatchEvent::Snapshot(objects) => {
                    let names = objects.iter().filter_map(|o| ObjectRef::from_manifest(o).ok());
                    let names: BTreeSet<ObjectRef> = names.collect();
                    !self.names.is_subset(&names) || objects.iter().any(|o| self.differs(o))
                }
                WatchEvent::Upserted(object) => self.differs(&object),
                WatchEvent::Deleted(gone, ..) => {
                    self.names.iter().any(|name| name.object_name() == gone)
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
        // An object that is being deleted cannot be repaired until it is gone.
        let deleting = !found["metadata"]["deletionTimestamp"].is_null();
        !deleting && wanted.is_some_and(|wanted| !covers(found, wanted))
    }
}
