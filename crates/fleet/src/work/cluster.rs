//! Reconciles clusters, from registration to deletion.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::blob::{BlobWrite, Blobs};
use kernel::driver::{Attempt, Decision, Effect, Requeue, Worker};
use kernel::outbound::{Delivery, Outbound};
use kernel::{Change, Error, Object, Result, Timestamp};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::autoscale;
use crate::Fleet;
use crate::decide::cluster::plan::{
    Access, Observation, ProvisionState, Step, cluster_change, decide,
};
use crate::model::cluster::{self, Cluster, Phase, Provider};
use crate::model::sso::agent_client_id;
use crate::ports::kubernetes::{self, AgentManifests, DriftWatcher};
use crate::ports::sso::agent_client;
use crate::ports::terraform::{RUN, RunStore, Terraform, TerraformInput};
use crate::store::clusters;

pub struct ClusterWorker {
    fleet: Arc<Fleet>,
    terraform: Arc<Terraform>,
    blobs: Blobs,
    outbound: Outbound,
    drift: DriftWatcher,
    /// Clients of clusters' API servers, and the kubeconfig of each.
    clients: Mutex<HashMap<String, (String, kubernetes::KubeClient)>>,
}

/// Drifted clusters that are not woken yet: waking is quick, so few are enough.
const DRIFTED_MAX: usize = 64;
/// Limits how fast repeated edits of our objects are repaired.
const DRIFT_PAUSE: Duration = Duration::from_millis(200);
/// How often a run that may not begin yet is tried.
const RUN_POLL: Duration = Duration::from_secs(5);
/// Before a failed wake-up is written again.
const PAUSE: Duration = Duration::from_secs(1);

impl ClusterWorker {
    /// Its background tasks belong to `tasks` and end with `stop`.
    pub fn start(
        fleet: &Arc<Fleet>,
        (terraform, blobs): (Terraform, Blobs),
        outbound: &Outbound,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> ClusterWorker {
        let (sender, mut drifted) = mpsc::channel::<String>(DRIFTED_MAX);
        let (state, stopped) = (fleet.clone(), stop.clone());
        tasks.spawn(async move {
            while let Some(Some(id)) = stopped.run_until_cancelled(drifted.recv()).await {
                tracing::info!(cluster = id, "drift detected on a cluster");
                let due = state.ambient.now().plus(DRIFT_PAUSE);
                while let Err(error) =
                    clusters::wake(state.store.as_ref(), &id, due, state.ambient.now()).await
                {
                    tracing::warn!(cluster = id, %error, "waking a cluster failed");
                    if stopped.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                        return;
                    }
                }
            }
        });
        let terraform = Arc::new(terraform);
        let waking = wake_interrupted_runs(fleet.clone(), terraform.clone(), blobs.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(waking));
        ClusterWorker {
            fleet: fleet.clone(),
            terraform,
            blobs,
            outbound: outbound.clone(),
            drift: DriftWatcher::new(sender, tasks.clone(), stop.clone()),
            clients: Mutex::default(),
        }
    }

    /// The client of the cluster's API server; `None` if we install nothing there.
    async fn client_for(
        &self,
        attempt: &Attempt,
        cluster: &Cluster,
    ) -> Result<Option<kubernetes::KubeClient>> {
        let (text, context) = match cluster.spec.provider {
            Provider::Standalone => {
                let Some(file) = &self.fleet.config.kubernetes.kubeconfig else {
                    let why = "fleet.kubernetes.kubeconfig is not set";
                    return Err(Error::unavailable("access to the cluster", why));
                };
                let text = tokio::fs::read_to_string(file).await.map_err(|error| {
                    Error::unavailable(format!("the kubeconfig {}", file.display()), error)
                })?;
                let context = if cluster.name.is_empty() { &cluster.id } else { &cluster.name };
                (text, Some(context.as_str()))
            }
            Provider::Terraform => {
                match self.terraform.outputs(&cluster.id, &self.run_store(attempt)).await? {
                    Some(made) if !made.kubeconfig.is_empty() => (made.kubeconfig, None),
                    _ => return Ok(None),
                }
            }
            Provider::Local | Provider::Agent | Provider::Enterprise => return Ok(None),
        };
        let known = self.clients.lock().get(&cluster.id).cloned();
        if let Some((_, client)) = known.filter(|(from, _)| *from == text) {
            return Ok(Some(client));
        }
        let client = kubernetes::KubeClient::from_kubeconfig(&text, context).await?;
        let client = client.through(&self.outbound).with_timeout(kubernetes::REQUEST_TIMEOUT);
        self.drift.unwatch(&cluster.id);
        self.clients.lock().insert(cluster.id.clone(), (text, client.clone()));
        Ok(Some(client))
    }

    async fn access(&self, attempt: &Attempt, cluster: &Cluster) -> Result<Access> {
        let terraform = cluster.spec.provider == Provider::Terraform;
        let early = matches!(cluster.phase, Phase::Accepted | Phase::Provisioning | Phase::Failed);
        if early || cluster.spec.deleting && terraform {
            return Ok(Access::Unmanaged);
        }
        let declared_only = cluster.spec.provider == Provider::Standalone
            && self.fleet.config.kubernetes.kubeconfig.is_none()
            && !matches!(cluster.phase, Phase::Provisioned);
        if declared_only {
            // It is declared, and we have no access: someone else installs its agent.
            return Ok(Access::Unmanaged);
        }
        let client = match self.client_for(attempt, cluster).await {
            Ok(Some(client)) => client,
            Ok(None) => return Ok(Access::Unmanaged),
            Err(error) => return Ok(Access::Unreachable(error.to_string())),
        };
        let agent = self.agent_manifests(cluster).await?;
        if !cluster.spec.deleting {
            let matches = self.drift.matches(&cluster.id, &agent.objects());
            return Ok(Access::Managed { matches, remaining: true });
        }
        let mut remaining = false;
        for root in agent.roots() {
            remaining |= client.get(&root).await?.is_some();
        }
        Ok(Access::Managed { matches: false, remaining })
    }

    async fn agent_manifests<'a>(&'a self, cluster: &'a Cluster) -> Result<AgentManifests<'a>> {
        let config = &self.fleet.config.kubernetes;
        let pull_secret = match &config.pull_secret_file {
            None => String::new(),
            Some(file) => tokio::fs::read_to_string(file).await.map_err(|error| {
                Error::unavailable(format!("the pull secret {}", file.display()), error)
            })?,
        };
        let catalogue = self.fleet.catalogue();
        let manifests = catalogue.kinds.values().flat_map(|kind| &kind.file.manifests);
        let kinds = manifests
            .filter_map(|manifest| kubernetes::ObjectRef::from_manifest(manifest).ok())
            .map(|name| name.kind())
            .collect();
        let parameters = parameters(&self.fleet, cluster);
        Ok(AgentManifests { config, cluster: &cluster.id, parameters, pull_secret, kinds })
    }

    /// Records an error in the cluster's status.
    async fn record_error(&self, attempt: &Attempt, error: Error) -> Error {
        let text: String = error.with_causes().chars().take(1_024).collect();
        if let Ok(mut cluster) = Cluster::from_object(&attempt.object)
            && cluster.status.reason != text
        {
            cluster.status.reason = text;
            let change = cluster_change(&attempt.object, &cluster, "retrying", attempt.now());
            if let Err(error) = attempt.record(change).await {
                tracing::debug!(%error, "recording a cluster's error failed");
            }
        }
        error
    }

    async fn execute_step(&self, attempt: &Attempt, cluster: &Cluster, step: &Step) -> Result<()> {
        let fleet = &self.fleet;
        match step {
            Step::Provision => {
                let store = self.run_store(attempt);
                self.terraform.apply(&terraform_input(cluster), &store).await.map(drop)
            }
            Step::Destroy => {
                let (begun, store) = (cluster.status.provider_asked, self.run_store(attempt));
                self.terraform.destroy(&terraform_input(cluster), begun, &store).await?;
                self.forget(&cluster.id);
                Ok(())
            }
            Step::InstallAgent => {
                let Some(client) = self.client_for(attempt, cluster).await? else { return Ok(()) };
                let objects = self.agent_manifests(cluster).await?.objects();
                let applied = self.drift.apply_all(&cluster.id, &client, objects).await;
                // An older API server may refuse what a newer one accepts.
                applied.map_err(|error| match error {
                    Error::Invalid { message, .. } => Error::unavailable("the API server", message),
                    error => error,
                })
            }
            Step::Uninstall => {
                self.drift.unwatch(&cluster.id);
                let Some(client) = self.client_for(attempt, cluster).await? else { return Ok(()) };
                for root in self.agent_manifests(cluster).await?.roots() {
                    client.delete(&root).await?;
                }
                Ok(())
            }
            Step::EnsureClient => {
                fleet.ports.sso.ensure(&agent_client(&fleet.secrets, cluster)).await
            }
            Step::RemoveClient => {
                self.forget(&cluster.id);
                fleet.ports.sso.remove(&agent_client_id(&cluster.id)).await
            }
            Step::LogScaleDown => {
                tracing::info!(cluster = cluster.id, "dry run: would delete this cluster");
                Ok(())
            }
        }
    }

    fn run_store<'a>(&'a self, attempt: &'a Attempt) -> AttemptBlobs<'a> {
        AttemptBlobs { attempt, blobs: &self.blobs }
    }

    fn forget(&self, id: &str) {
        self.drift.unwatch(id);
        self.clients.lock().remove(id);
    }
}

#[async_trait]
impl Worker for ClusterWorker {
    type Observed = Observation;
    type Step = Step;

    fn kind(&self) -> &str {
        cluster::KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<Observation> {
        let fleet = &self.fleet;
        let cluster = Cluster::from_object(&attempt.object)?;
        let deleting = cluster.spec.deleting;
        let needs_client = fleet.ports.sso_is_external && cluster.spec.provider != Provider::Local;
        let client_matches = if deleting || !needs_client || cluster.phase == Phase::Failed {
            true
        } else {
            fleet.ports.sso.matches(&agent_client(&fleet.secrets, &cluster)).await?
        };
        let outputs = match cluster.spec.provider {
            Provider::Terraform if cluster.phase == Phase::Provisioning => {
                self.terraform.outputs(&cluster.id, &self.run_store(attempt)).await?
            }
            _ => None,
        };
        let force = deleting && cluster.spec.force || attempt.object.deleted_at.is_some();
        let instances = if deleting || cluster.spec.dynamic {
            // A stale index must not decide what cannot be undone.
            fleet.index.catch_up().await?;
            fleet.index.on_cluster(&cluster.id)
        } else {
            Vec::new()
        };
        let config = &fleet.config;
        let seconds = Duration::from_secs;
        Ok(Observation {
            instances: instances.len(),
            last_seen: fleet.agent_liveness.last_seen(&cluster),
            lost_after: seconds(config.agent.lost_after_s),
            recheck: seconds(config.kubernetes.recheck_s.min(config.timeouts.recheck_s)),
            provision_timeout: seconds(config.timeouts.cluster_s),
            needs_client,
            client_matches,
            provision: outputs.map_or(ProvisionState::Pending, |outputs| ProvisionState::Done {
                dns_name: outputs.dns_name,
                external_id: outputs.external_id,
            }),
            access: if force { Access::Unmanaged } else { self.access(attempt, &cluster).await? },
            scale_down: autoscale::scale_down_state(fleet, &cluster, instances.len()),
        })
    }

    fn decide(&self, object: &Object, observed: &Observation, now: Timestamp) -> Decision<Step> {
        match Cluster::from_object(object) {
            Ok(_) if object.deleted_at.is_some() => Decision::idle(Requeue::Never),
            Ok(cluster) => decide(object, &cluster, observed, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<Effect> {
        let cluster = Cluster::from_object(&attempt.object)?;
        match self.execute_step(attempt, &cluster, step).await {
            Err(error) => {
                let error = self.record_error(attempt, error).await;
                let run = matches!(step, Step::Provision | Step::Destroy);
                if run && error.delivery() == Some(Delivery::Rejected) {
                    // It is another machine's turn, or another run's: asked again at a steady pace.
                    return Ok(Effect::Pending { poll: RUN_POLL, note: error.to_string() });
                }
                Err(error)
            }
            Ok(()) => Ok(Effect::Done),
        }
    }

    fn timeout(&self, step: &Step) -> Duration {
        match step {
            // A run takes as long as its cloud does; its own timeout is shorter.
            Step::Provision | Step::Destroy => {
                2 * self.terraform.timeout() + Duration::from_secs(300)
            }
            // One request per object, to an API server that may be far away.
            Step::InstallAgent | Step::Uninstall => Duration::from_secs(300),
            Step::EnsureClient | Step::RemoveClient | Step::LogScaleDown => Duration::from_secs(30),
        }
    }
}

/// Only this machine can go on with a run that ended with its last server, and another replica may be
/// first at each turn of the cluster: wakes it until the turn was ours.
async fn wake_interrupted_runs(fleet: Arc<Fleet>, terraform: Arc<Terraform>, blobs: Blobs) {
    let mut left = terraform.known();
    while !left.is_empty() {
        for id in std::mem::take(&mut left) {
            match wake_interrupted(&fleet, &terraform, &blobs, &id).await {
                Ok(false) => {}
                Ok(true) => left.push(id),
                Err(error) => {
                    tracing::warn!(cluster = id, %error, "looking for an interrupted run failed");
                    left.push(id);
                }
            }
        }
        if !left.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Wakes a cluster if its run was interrupted. Returns whether it was.
async fn wake_interrupted(
    fleet: &Fleet,
    terraform: &Terraform,
    blobs: &Blobs,
    id: &str,
) -> Result<bool> {
    let store = fleet.store.as_ref();
    let Some(run) = blobs.get(store, &cluster::key(id), RUN).await? else { return Ok(false) };
    if !terraform.was_interrupted(id, &run.data).await? {
        return Ok(false);
    }
    let now = fleet.ambient.now();
    clusters::wake(store, id, now, now).await.map(|()| true)
}

/// What a cluster's runs must not lose, in its blobs: sealed, since states have passwords.
struct AttemptBlobs<'a> {
    attempt: &'a Attempt,
    blobs: &'a Blobs,
}

#[async_trait]
impl RunStore for AttemptBlobs<'_> {
    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let found = self.blobs.get(self.attempt.store(), &self.attempt.object.key, name).await?;
        Ok(found.map(|blob| blob.data))
    }

    async fn write(&self, writes: &[(&str, Option<&[u8]>)]) -> Result<()> {
        let key = &self.attempt.object.key;
        let mut blobs = Vec::new();
        for (name, data) in writes {
            match data {
                Some(data) => blobs.extend(self.blobs.put(key, name, None, data, true)?),
                None => blobs
                    .push(BlobWrite::Remove { key: key.clone(), name: Some((*name).to_owned()) }),
            }
        }
        self.attempt.record(Change { blobs, ..Change::default() }).await
    }

    fn lease(&self) -> Duration {
        self.attempt.lease_remaining()
    }
}

fn terraform_input(cluster: &Cluster) -> TerraformInput {
    TerraformInput {
        id: cluster.id.clone(),
        name: cluster.name.clone(),
        cloud_provider: cluster.spec.cloud_provider.clone(),
        region: cluster.spec.region.clone(),
        multi_az: cluster.spec.multi_az,
    }
}

/// The parameters of a cluster's agent: those of every agent, and one that only ours understands.
fn parameters(fleet: &Fleet, cluster: &Cluster) -> BTreeMap<String, String> {
    let offers = serde_json::json!(fleet.config.agent.offers).to_string();
    let known = fleet.agent_parameters(cluster).into_iter().chain([("offers", offers)]);
    known.map(|(name, value)| (name.to_owned(), value)).collect()
}
