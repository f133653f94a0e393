//! `mainstay agent`: the data plane of a Kubernetes cluster. Applies the desired instances of the
//! control plane as objects of the cluster, and reports their status.
//!
//! All state is in the API server: an agent that is killed continues from there.

mod control_plane;
mod desired;
pub mod health;
mod object_cache;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kernel::outbound::Outbound;
use kernel::telemetry::Secret;
use kernel::{Error, Result};
use kubernetes::{Lane, Outcome, Queue};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dataplane::ready_condition;
use crate::model::kind::Summary;
use crate::ports::kubernetes::{KubeClient, ObjectRef, REQUEST_TIMEOUT};
use control_plane::{ControlPlane, Delta};
use desired::DesiredInstance;
use object_cache::ObjectCache;

/// The settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    pub control_plane_url: String,
    pub cluster_id: String,
    /// The issuer that gives tokens.
    pub sso_url: String,
    pub client_id: String,
    pub client_secret: Secret,
    /// The interval of requests to a control plane that has no long polling.
    pub poll: Duration,
    /// The interval of complete reports.
    pub resync: Duration,
    /// Versions by kind and component; `latest` if none is named.
    pub offers: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Settings {
    /// Reads values by the names that existing agents use.
    pub fn from_values(value: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let given = |name: &str| {
            let value = value(name).map(|text| text.trim().to_owned());
            value.filter(|text| !text.is_empty())
        };
        let needed = |name: &str| given(name).ok_or_else(|| Error::invalid(name, "must be given"));
        let pause = |name: &str, or: u64| match given(name) {
            None => Ok(Duration::from_secs(or)),
            Some(text) => seconds(&text)
                .ok_or_else(|| Error::invalid(name, format!("`{text}` must be like 15s"))),
        };
        let offers = given("offers").map(|text| serde_json::from_str(&text)).transpose();
        Ok(Settings {
            control_plane_url: needed("control-plane-url")?.trim_end_matches('/').to_owned(),
            cluster_id: needed("cluster-id")?,
            sso_url: needed("sso-auth-server-url")?.trim_end_matches('/').to_owned(),
            client_id: needed("sso-client-id")?,
            client_secret: Secret::new(needed("sso-secret")?),
            poll: pause("poll-interval", 15)?,
            resync: pause("resync-interval", 60)?,
            offers: offers
                .map_err(|e| Error::invalid("offers", e.to_string()))?
                .unwrap_or_default(),
        })
    }

    /// Reads a directory with a file for each value.
    pub fn from_dir(dir: &Path) -> Result<Settings> {
        Settings::from_values(|name| std::fs::read_to_string(dir.join(name)).ok())
    }
}

/// Timers cannot represent much longer intervals, and none is of use.
const INTERVAL_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Reads `15s`, `2m`, `500ms`.
fn seconds(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3_600).map(Duration::from_secs),
        _ => None,
    }
    .filter(|pause| !pause.is_zero() && *pause <= INTERVAL_MAX)
}

/// The delay after a failed request.
const PAUSE: Duration = Duration::from_secs(2);
/// Deltas that are not applied yet: each has at most the whole list.
const DELTAS_MAX: usize = 8;
/// Instances of one report.
const PAGE: usize = 500;
/// Instances that are reconciled concurrently.
const AT_ONCE: usize = 16;

/// Serves a cluster until `stop`.
pub async fn run(
    settings: Settings,
    cluster: KubeClient,
    outbound: &Outbound,
    stop: CancellationToken,
) -> Result<()> {
    let cluster = cluster.through(outbound).with_timeout(REQUEST_TIMEOUT);
    let tasks = TaskTracker::new();
    let (deltas, desired) = mpsc::channel(DELTAS_MAX);
    let control_plane = ControlPlane::new(&settings, outbound)?;
    let cache =
        ObjectCache::new(cluster.clone(), &settings.cluster_id, tasks.clone(), stop.clone());
    let queue = Queue::new(outbound.ambient().clone());
    queue.open();
    let agent = Agent {
        settings,
        queue,
        cluster,
        control_plane,
        cache,
        instances: BTreeMap::new(),
        reported: HashMap::new(),
        kinds: BTreeMap::new(),
        registered: false,
        deltas,
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    stop.run_until_cancelled(agent.serve(desired)).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

struct Agent {
    settings: Settings,
    cluster: KubeClient,
    control_plane: ControlPlane,
    cache: ObjectCache,
    /// The ids of instances to reconcile.
    queue: Queue<String>,
    instances: BTreeMap<String, Arc<DesiredInstance>>,
    /// The last report of each instance.
    reported: HashMap<String, Value>,
    kinds: BTreeMap<String, Summary>,
    /// The control plane has accepted the report of the cluster.
    registered: bool,
    deltas: mpsc::Sender<Delta>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Agent {
    async fn serve(mut self, mut desired: mpsc::Receiver<Delta>) {
        let mut resync = tokio::time::interval(self.settings.resync);
        loop {
            tokio::select! {
                Some(delta) = desired.recv() => {
                    let ids = self.apply_delta(delta);
                    self.enqueue(ids, Lane::Urgent);
                }
                ids = self.cache.changed() => self.enqueue(ids, Lane::Normal),
                _ = resync.tick() => {
                    self.register().await;
                    // Everything is reported again, including what did not change.
                    self.reported.clear();
                    self.queue.sweep();
                    self.enqueue(self.instances.keys().cloned(), Lane::Normal);
                }
                () = tokio::time::sleep(PAUSE), if !self.registered => {
                    self.register().await;
                }
                (id, _) = self.queue.pop() => self.reconcile(id).await,
            }
        }
    }

    fn enqueue(&self, ids: impl IntoIterator<Item = String>, lane: Lane) {
        ids.into_iter().for_each(|id| self.queue.push(id, lane));
    }

    /// Lists the kinds and reports the cluster.
    async fn register(&mut self) {
        let done = match self.follow_kinds().await {
            Ok(()) => self.report_cluster().await,
            failed => failed,
        };
        self.registered = done.is_ok();
        if let Err(error) = done {
            tracing::warn!(%error, "registering the cluster failed; retrying");
        }
    }

    /// Starts to follow each kind that is new.
    async fn follow_kinds(&mut self) -> Result<()> {
        for kind in self.control_plane.kinds().await? {
            if !self.kinds.contains_key(&kind.kind) {
                let (control_plane, kind, deltas) =
                    (self.control_plane.clone(), kind.clone(), self.deltas.clone());
                let (poll, stop) = (self.settings.poll, self.stop.clone());
                self.tasks.spawn(async move {
                    stop.run_until_cancelled(control_plane.follow(kind, poll, deltas)).await;
                });
            }
            self.kinds.insert(kind.kind.clone(), kind);
        }
        Ok(())
    }

    /// Returns the instances that changed.
    fn apply_delta(&mut self, delta: Delta) -> Vec<String> {
        let mut ids = Vec::new();
        if delta.full {
            let named: BTreeSet<&str> =
                delta.items.iter().filter_map(|item| item["id"].as_str()).collect();
            self.instances
                .retain(|id, desired| desired.kind != delta.kind || named.contains(id.as_str()));
        }
        // Its deletion was not requested: its objects stay.
        for id in &delta.gone {
            self.instances.remove(id);
            self.reported.remove(id);
        }
        for item in &delta.items {
            match DesiredInstance::read(&delta.kind, &self.settings.cluster_id, item) {
                Ok(desired) => {
                    ids.push(desired.id.clone());
                    self.instances.insert(desired.id.clone(), Arc::new(desired));
                }
                Err(error) => tracing::warn!(%error, "ignoring an instance that cannot be parsed"),
            }
        }
        ids
    }

    /// Reconciles this instance and all that wait, and reports what changed.
    async fn reconcile(&mut self, first: String) {
        let others = std::iter::from_fn(|| self.queue.try_pop().map(|(id, _)| id));
        let ids: Vec<String> = std::iter::once(first).chain(others).collect();
        let mut work = Vec::new();
        for desired in ids.iter().filter_map(|id| self.instances.get(id).cloned()) {
            let (cluster, cache) = (&self.cluster, &self.cache);
            work.push(async move {
                let done = reconcile::reconcile(&desired, cluster, cache).await;
                (desired.id.clone(), desired.kind.clone(), done)
            });
        }
        let reconciled: Vec<_> =
            futures::stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
        let mut outcomes: HashMap<String, Outcome> = HashMap::new();
        let mut reports: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (id, kind, done) in reconciled {
            match done {
                Ok(Some(status)) if self.reported.get(&id) != Some(&status) => {
                    reports.entry(kind).or_default().insert(id, status);
                }
                Ok(Some(_)) => {}
                // Its deletion is not complete.
                Ok(None) => drop(outcomes.insert(id, Outcome::Done(Some(Instant::now() + PAUSE)))),
                Err(error) => {
                    tracing::warn!(%id, %error, "reconciling an instance failed; retrying");
                    outcomes.insert(id, Outcome::Retry("reconcile", Duration::ZERO));
                }
            }
        }
        for (kind, statuses) in reports {
            let Some(kind) = self.kinds.get(&kind) else { continue };
            for page in pages(statuses) {
                match self.control_plane.report(kind, &page).await {
                    Ok(()) => self.reported.extend(page),
                    Err(error) => {
                        tracing::warn!(%error, "reporting status failed; retrying");
                        let retry = Outcome::Retry("report", Duration::ZERO);
                        outcomes.extend(page.into_iter().map(|(id, _)| (id, retry)));
                    }
                }
            }
        }
        for id in &ids {
            let outcome = outcomes.remove(id);
            self.queue.finish(id, outcome.unwrap_or(Outcome::Done(None)), outcome.is_some());
        }
    }

    /// Reports whether the cluster works, and the versions that it can run.
    async fn report_cluster(&self) -> Result<()> {
        let (status, message) =
            match self.cluster.get(&ObjectRef::new("v1", "Namespace", "", "default")).await {
                Ok(_) => ("True", String::new()),
                Err(error) => ("False", error.to_string()),
            };
        let ready = ready_condition(status, "", &message);
        for kind in self.kinds.values() {
            let mut body = ready.clone();
            if let Some(versions) = &kind.versions {
                let offers = self.settings.offers.get(&kind.kind);
                let offered = |component: &String| {
                    let named = offers.and_then(|offers| offers.get(component)).cloned();
                    named
                        .filter(|versions| !versions.is_empty())
                        .unwrap_or_else(|| vec!["latest".into()])
                };
                let mut operator = json!({ "ready": true });
                operator["version"] = offered(&versions.operator).remove(0).into();
                for (component, list) in &versions.components {
                    operator[list] = offered(component).into();
                }
                body[&versions.operator] = json!([operator]);
            }
            self.control_plane.report_cluster(kind, &body).await?;
        }
        Ok(())
    }
}

/// Splits a report: other control planes than ours may refuse long bodies.
fn pages(statuses: Map<String, Value>) -> impl Iterator<Item = Map<String, Value>> {
    let mut rest = statuses.into_iter();
    let page = move || rest.by_ref().take(PAGE).collect::<Map<String, Value>>();
    std::iter::repeat_with(page).take_while(|page| !page.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_report_is_split_and_nothing_is_left_out() {
        let all: Map<String, Value> =
            (0..2 * PAGE + 1).map(|i| (format!("i{i}"), Value::from(i))).collect();
        let split: Vec<Map<String, Value>> = pages(all.clone()).collect();
        let sizes: Vec<usize> = split.iter().map(Map::len).collect();
        assert_eq!(sizes, [PAGE, PAGE, 1]);
        assert_eq!(split.into_iter().flatten().collect::<Map<String, Value>>(), all);
        assert_eq!(pages(Map::new()).count(), 0);
    }

    #[test]
    fn settings_are_read_by_the_names_that_existing_agents_use() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        for (name, text) in [
            ("control-plane-url", "https://x/\n"),
            ("cluster-id", "c1"),
            ("sso-auth-server-url", "https://sso"),
            ("sso-client-id", "me"),
            ("sso-secret", "hunter2"),
            ("poll-interval", "15s"),
        ] {
            write(name, text);
        }
        let settings = Settings::from_dir(dir.path()).unwrap();
        assert_eq!(settings.control_plane_url, "https://x");
        assert_eq!(
            (settings.poll, settings.resync),
            (Duration::from_secs(15), Duration::from_secs(60))
        );
        assert!(!format!("{settings:?}").contains("hunter2"));
        for wrong in ["soon", "0s", "9999999999999999999h", "18446744073709551615m", "9999999h"] {
            write("resync-interval", wrong);
            let why = Settings::from_dir(dir.path()).unwrap_err().to_string();
            assert!(why.contains("resync-interval"), "{wrong}: {why}");
        }
    }
}
