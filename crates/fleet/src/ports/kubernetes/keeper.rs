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

use super::handover::CLUSTER_LABEL;
use super::{Cluster, Name, Resource, covers};

pub struct Keeper {
    kept: Mutex<HashMap<String, Kept>>,
    /// Clusters on which something is not as it should be.
    drifted: mpsc::Sender<String>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Kept {
    wanted: Arc<Vec<Value>>,
    drifted: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Keeper {
    pub fn new(
        drifted: mpsc::Sender<String>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Keeper {
        Keeper { kept: Mutex::default(), drifted, tasks, stop }
    }

    /// Whether these were put there, are watched, and nobody has touched them.
    pub fn is_so(&self, id: &str, wanted: &[Value]) -> bool {
        let kept = self.kept.lock();
        kept.get(id).is_some_and(|kept| {
            kept.wanted.as_slice() == wanted && !kept.drifted.load(Ordering::Acquire)
        })
    }

    /// Puts everything on a cluster, and watches it from then on.
    pub async fn put(&self, id: &str, cluster: &Cluster, wanted: Vec<Value>) -> Result<()> {
        // Cleared first: what drifts from here on is seen again.
        if let Some(kept) = self.kept.lock().get(id).filter(|kept| *kept.wanted == wanted) {
            kept.drifted.store(false, Ordering::Release);
        }
        for object in &wanted {
            if let Err(error) = cluster.apply(object).await {
                self.mark(id);
                return Err(error);
            }
        }
        self.watch(id, cluster, wanted).await
    }

    fn mark(&self, id: &str) {
        if let Some(kept) = self.kept.lock().get(id) {
            kept.drifted.store(true, Ordering::Release);
        }
    }

    /// Nothing of it is watched any more.
    pub fn forget(&self, id: &str) {
        if let Some(kept) = self.kept.lock().remove(id) {
            kept.stop.cancel();
        }
    }

    async fn watch(&self, id: &str, cluster: &Cluster, wanted: Vec<Value>) -> Result<()> {
        if self.kept.lock().get(id).is_some_and(|kept| *kept.wanted == wanted) {
            return Ok(());
        }
        let mut kinds: Vec<(Resource, BTreeSet<Name>)> = Vec::new();
        for object in &wanted {
            let name = Name::of(object)?;
            let resource = cluster.resource(&name).await?;
            match kinds.iter_mut().find(|(known, _)| known.api == resource.api) {
                Some((_, names)) => drop(names.insert(name)),
                None => kinds.push((resource, [name].into())),
            }
        }
        let wanted = Arc::new(wanted);
        let kept =
            Kept { wanted: wanted.clone(), drifted: Arc::default(), stop: self.stop.child_token() };
        for (resource, names) in kinds {
            let eye = Eye {
                id: id.to_owned(),
                names,
                wanted: wanted.clone(),
                drifted: kept.drifted.clone(),
                tell: self.drifted.clone(),
            };
            let (api, stop) = (cluster.all(&resource), kept.stop.clone());
            self.tasks.spawn(async move { stop.run_until_cancelled(eye.follow(api)).await });
        }
        if let Some(old) = self.kept.lock().insert(id.to_owned(), kept) {
            old.stop.cancel();
        }
        Ok(())
    }
}

/// Looks at our objects of one kind on one cluster.
struct Eye {
    id: String,
    names: BTreeSet<Name>,
    wanted: Arc<Vec<Value>>,
    drifted: Arc<AtomicBool>,
    tell: mpsc::Sender<String>,
}

impl Eye {
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
                    if let Ok(name) = Name::of(&found) {
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
                    Name::of(&gone).is_ok_and(|name| self.names.contains(&name))
                }
            };
            if drift && !self.drifted.swap(true, Ordering::AcqRel) {
                let _ = self.tell.send(self.id.clone()).await;
            }
        }
    }

    fn differs(&self, found: &Value) -> bool {
        let Ok(name) = Name::of(found) else { return false };
        let wanted = self.wanted.iter().find(|wanted| Name::of(wanted).is_ok_and(|it| it == name));
        // One that is going cannot be mended until it is gone.
        let going = !found["metadata"]["deletionTimestamp"].is_null();
        !going && wanted.is_some_and(|wanted| !covers(found, wanted))
    }
}
