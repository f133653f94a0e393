//! Clusters: from their registration until they are gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::Wake;
use kernel::driver::{Attempt, Decision, Requeue, Worker};
use kernel::outbound::Outbound;
use kernel::{Error, Object, Result, Timestamp};
use kube::core::GroupVersionKind;
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
use crate::model::instance::{self, Instance};
use crate::model::sso::agent_client_id;
use crate::ports::kubernetes::{self, AgentManifests, DriftWatcher};
use crate::ports::sso::agent_client;
use crate::ports::terraform::{Terraform, TerraformInput};
use crate::store::clusters;

pub struct ClusterWorker {
    fleet: Arc<Fleet>,
    terraform: Terraform,
    outbound: Outbound,
    drift: DriftWatcher,
    /// Ways to clusters, and the kubeconfig that each came from.
    clients: Mutex<HashMap<String, (String, kubernetes::KubeClient)>>,
}

/// Clusters that drifted and were not looked at yet: a wake-up is quick, so few are enough.
const DRIFTED_MAX: usize = 64;
/// Edits by someone who does not give up are not answered faster than this.
const DRIFT_PAUSE: Duration = Duration::from_millis(200);
/// After a wake-up that could not be written.
const PAUSE: Duration = Duration::from_secs(1);

impl ClusterWorker {
    /// What it leaves running belongs to `tasks` and ends with `stop`.
    pub fn start(
        fleet: &Arc<Fleet>,
        terraform: Terraform,
        outbound: &Outbound,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> ClusterWorker {
        let (tell, mut told) = mpsc::channel::<String>(DRIFTED_MAX);
        let (of, ends) = (fleet.clone(), stop.clone());
        tasks.spawn(async move {
            while let Some(Some(id)) = ends.run_until_cancelled(told.recv()).await {
                tracing::info!(cluster = id, "what we put on a cluster was changed there");
                let due = of.ambient.now().plus(DRIFT_PAUSE);
                while let Err(error) =
                    clusters::wake(of.store.as_ref(), &id, due, of.ambient.now()).await
                {
                    tracing::warn!(cluster = id, %error, "a cluster could not be woken");
                    if ends.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                        return;
                    }
                }
            }
        });
        ClusterWorker {
            fleet: fleet.clone(),
            terraform,
            outbound: outbound.clone(),
            drift: DriftWatcher::new(tell, tasks.clone(), stop.clone()),
            clients: Mutex::default(),
        }
    }

    /// How to reach what we put things on; `None` if we put nothing on it.
    async fn client_for(&self, cluster: &Cluster) -> Result<Option<kubernetes::KubeClient>> {
        let (text, context) = match cluster.spec.provider {
            Provider::Standalone => {
                let Some(file) = &self.fleet.config.kubernetes.kubeconfig else {
                    let what = "the way to it: fleet.kubernetes.kubeconfig, which names no file,";
                    return Err(Error::Unavailable { what: what.into(), source: None });
                };
                let text = std::fs::read_to_string(file).map_err(|error| {
                    Error::unavailable(format!("the kubeconfig {}", file.display()), error)
                })?;
                let context = if cluster.name.is_empty() { &cluster.id } else { &cluster.name };
                (text, Some(context.as_str()))
            }
            Provider::Terraform => match self.terraform.outputs(&cluster.id).await? {
                Some(made) if !made.kubeconfig.is_empty() => (made.kubeconfig, None),
                _ => return Ok(None),
            },
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

    async fn access(&self, cluster: &Cluster) -> Result<Access> {
        let terraform = cluster.spec.provider == Provider::Terraform;
        let early = matches!(cluster.phase, Phase::Accepted | Phase::Provisioning | Phase::Failed);
        if early || cluster.spec.deleting && terraform {
            return Ok(Access::Unmanaged);
        }
        let standing = cluster.spec.provider == Provider::Standalone
            && self.fleet.config.kubernetes.kubeconfig.is_none()
            && !matches!(cluster.phase, Phase::Provisioned);
        if standing {
            // It was declared as being there, and we were given no way to it: its agent is.
            return Ok(Access::Unmanaged);
        }
        let client = match self.client_for(cluster).await {
            Ok(Some(client)) => client,
            Ok(None) => return Ok(Access::Unmanaged),
            Err(error) => return Ok(Access::Unreachable(error.to_string())),
        };
        let parameters = parameters(&self.fleet, cluster);
        self.with_agent_manifests(cluster, &parameters, async |manifests_| {
            if !cluster.spec.deleting {
                let matches = self.drift.matches(&cluster.id, &manifests_.objects());
                return Ok(Access::Managed { matches, remaining: true });
            }
            let mut remaining = false;
            for root in manifests_.roots() {
                remaining |= client.get(&root).await?.is_some();
            }
            Ok(Access::Managed { matches: false, remaining })
        })
        .await
    }

    async fn with_agent_manifests<T>(
        &self,
        cluster: &Cluster,
        parameters: &BTreeMap<String, String>,
        work: impl AsyncFnOnce(AgentManifests<'_>) -> Result<T>,
    ) -> Result<T> {
        let config = &self.fleet.config.kubernetes;
        let pull_secret = match &config.pull_secret_file {
            None => String::new(),
            Some(file) => std::fs::read_to_string(file).map_err(|error| {
                Error::unavailable(format!("the pull secret {}", file.display()), error)
            })?,
        };
        let catalogue = self.fleet.catalogue();
        let manifests = catalogue.kinds.values().flat_map(|kind| &kind.file.manifests);
        let kinds: Vec<GroupVersionKind> = manifests
            .filter_map(|manifest| kubernetes::ObjectRef::from_manifest(manifest).ok())
            .map(|name| name.kind())
            .collect();
        let pull_secret = pull_secret.as_str();
        let manifests_ =
            AgentManifests { config, cluster: &cluster.id, parameters, pull_secret, kinds: &kinds };
        work(manifests_).await
    }

    /// Writes down what went wrong, so that it can be read where the cluster is.
    async fn record_error(&self, attempt: &Attempt, error: Error) -> Error {
        let text = error.to_string();
        if let Ok(mut cluster) = Cluster::from_object(&attempt.object)
            && cluster.status.reason != text
        {
            cluster.status.reason = text.chars().take(1_024).collect();
            let change = cluster_change(&attempt.object, &cluster, "retrying", attempt.now());
            if let Err(error) = attempt.record(change).await {
                tracing::debug!(%error, "a reason could not be written down");
            }
        }
        error
    }

    async fn execute_step(&self, cluster: &Cluster, step: &Step) -> Result<()> {
        let fleet = &self.fleet;
        match step {
            Step::Provision => self.terraform.apply(&terraform_input(cluster)).await.map(drop),
            Step::Destroy => {
                let asked = cluster.status.provider_asked;
                self.terraform.destroy(&terraform_input(cluster), asked).await?;
                self.forget(&cluster.id);
                Ok(())
            }
            Step::InstallAgent => {
                let Some(client) = self.client_for(cluster).await? else { return Ok(()) };
                let parameters = parameters(fleet, cluster);
                self.with_agent_manifests(cluster, &parameters, async |manifests_| {
                    self.drift.apply_all(&cluster.id, &client, manifests_.objects()).await
                })
                .await
                // An older API server may refuse what its successor takes.
                .map_err(|error| match error {
                    Error::Invalid { message, .. } => Error::unavailable(message, "refused"),
                    error => error,
                })
            }
            Step::Uninstall => {
                self.drift.unwatch(&cluster.id);
                let Some(client) = self.client_for(cluster).await? else { return Ok(()) };
                self.with_agent_manifests(cluster, &BTreeMap::new(), async |manifests_| {
                    for root in manifests_.roots() {
                        client.delete(&root).await?;
                    }
                    Ok(())
                })
                .await
            }
            Step::EnsureClient => fleet.sso.ensure(&agent_client(&fleet.secrets, cluster)).await,
            Step::RemoveClient => {
                self.forget(&cluster.id);
                fleet.sso.remove(&agent_client_id(&cluster.id)).await
            }
            Step::LogScaleDown => {
                tracing::info!(cluster = cluster.id, "dry run: this cluster would be taken away");
                Ok(())
            }
        }
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
        let needs_client = fleet.sso_is_external && cluster.spec.provider != Provider::Local;
        let client_matches = if deleting || !needs_client || cluster.phase == Phase::Failed {
            true
        } else {
            fleet.sso.matches(&agent_client(&fleet.secrets, &cluster)).await?
        };
        let made = match cluster.spec.provider {
            Provider::Terraform if cluster.phase == Phase::Provisioning => {
                self.terraform.outputs(&cluster.id).await?
            }
            _ => None,
        };
        let force = deleting && cluster.spec.force;
        let on_it = if deleting || cluster.spec.dynamic {
            // What cannot be undone is not done by an old picture.
            fleet.index.catch_up().await?;
            fleet.index.on_cluster(&cluster.id)
        } else {
            Vec::new()
        };
        let now = attempt.now();
        let config = &fleet.config;
        let seconds = Duration::from_secs;
        Ok(Observation {
            instances: on_it.len(),
            last_seen: fleet.agent_liveness.last_seen(&cluster),
            lost_after: seconds(config.agent.lost_after_s),
            recheck: seconds(config.kubernetes.recheck_s.min(config.timeouts.recheck_s)),
            provision_timeout: seconds(config.timeouts.cluster_s),
            needs_client,
            client_matches,
            provision: made.map_or(ProvisionState::Pending, |made| ProvisionState::Done {
                dns_name: made.dns_name,
                external_id: made.external_id,
            }),
            access: if force { Access::Unmanaged } else { self.access(&cluster).await? },
            scale_down: autoscale::scale_down_state(fleet, &cluster, on_it.len()),
            wakes: on_it.iter().map(|row| wake_evicted(&row.instance, now)).collect(),
        })
    }

    fn decide(&self, object: &Object, observed: &Observation, now: Timestamp) -> Decision<Step> {
        match Cluster::from_object(object) {
            Ok(_) if object.deleted_at.is_some() => Decision::idle(Requeue::Never),
            Ok(cluster) => decide(object, &cluster, observed, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<()> {
        let cluster = Cluster::from_object(&attempt.object)?;
        match self.execute_step(&cluster, step).await {
            Err(error) => Err(self.record_error(attempt, error).await),
            done => done,
        }
    }

    /// A run of Terraform takes as long as its cloud does; it ends itself before this.
    fn step_timeout(&self) -> Duration {
        2 * self.terraform.timeout() + Duration::from_secs(300)
    }
}

/// Lets an instance know that its cluster is gone. One that is still being prepared goes by the
/// picture in memory, which will know by then.
fn wake_evicted(instance: &Instance, now: Timestamp) -> Wake {
    let early = matches!(instance.phase, instance::Phase::Accepted | instance::Phase::Preparing);
    let due = if early { now.plus(PAUSE) } else { now };
    instance.wake(due)
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

/// What a cluster's agent is told: what every agent is, and what only ours understands.
fn parameters(fleet: &Fleet, cluster: &Cluster) -> BTreeMap<String, String> {
    let offers = serde_json::json!(fleet.config.agent.offers).to_string();
    let known = fleet.agent_parameters(cluster).into_iter().chain([("offers", offers)]);
    known.map(|(name, value)| (name.to_owned(), value)).collect()
}
