//! Clusters: from their registration until they are gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::Wake;
use kernel::driver::{Attempt, Decision, Requeue, Worker};
use kernel::{Change, Error, Object, Result, Timestamp};
use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::scale;
use crate::Fleet;
use crate::clients;
use crate::decide::cluster::plan::{Made, Reach, Step, World, decide, written};
use crate::model::cluster::{self, Cluster, Provider, Status};
use crate::model::instance::{self, Instance};
use crate::ports::kubernetes::handover::Handover;
use crate::ports::kubernetes::{self, Keeper};
use crate::ports::terraform::{Terraform, Wanted};

pub struct Clusters {
    fleet: Arc<Fleet>,
    terraform: Terraform,
    keeper: Keeper,
    /// Ways to clusters, and the kubeconfig that each came from.
    ways: Mutex<HashMap<String, (String, kubernetes::Cluster)>>,
}

/// Clusters that drifted and were not looked at yet: a wake-up is quick, so few are enough.
const DRIFTED_MAX: usize = 64;
/// Edits by someone who does not give up are not answered faster than this.
const DRIFT_PAUSE: Duration = Duration::from_millis(200);
/// After a wake-up that could not be written.
const PAUSE: Duration = Duration::from_secs(1);

impl Clusters {
    /// What it leaves running belongs to `tasks` and ends with `stop`.
    pub fn start(
        fleet: &Arc<Fleet>,
        terraform: Terraform,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Clusters {
        let (tell, mut told) = mpsc::channel::<String>(DRIFTED_MAX);
        let (of, ends) = (fleet.clone(), stop.clone());
        tasks.spawn(async move {
            while let Some(Some(id)) = ends.run_until_cancelled(told.recv()).await {
                tracing::info!(cluster = id, "what we put on a cluster was changed there");
                let due = of.ambient.now().plus(DRIFT_PAUSE);
                while let Err(error) = wake(&of, &id, due).await {
                    tracing::warn!(cluster = id, %error, "a cluster could not be woken");
                    if ends.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                        return;
                    }
                }
            }
        });
        Clusters {
            fleet: fleet.clone(),
            terraform,
            keeper: Keeper::new(tell, tasks.clone(), stop.clone()),
            ways: Mutex::default(),
        }
    }

    /// How to reach what we put things on; `None` if we put nothing on it.
    async fn way(&self, cluster: &Cluster) -> Result<Option<kubernetes::Cluster>> {
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
        let known = self.ways.lock().get(&cluster.id).cloned();
        if let Some((_, way)) = known.filter(|(from, _)| *from == text) {
            return Ok(Some(way));
        }
        let way = kubernetes::Cluster::open(&text, context).await?;
        self.keeper.forget(&cluster.id);
        self.ways.lock().insert(cluster.id.clone(), (text, way.clone()));
        Ok(Some(way))
    }

    async fn reach(&self, cluster: &Cluster) -> Result<Reach> {
        let terraform = cluster.spec.provider == Provider::Terraform;
        let early =
            matches!(cluster.status, Status::Accepted | Status::Provisioning | Status::Failed);
        if early || cluster.spec.deleting && terraform {
            return Ok(Reach::NotOurs);
        }
        let standing = cluster.spec.provider == Provider::Standalone
            && self.fleet.config.kubernetes.kubeconfig.is_none()
            && !matches!(cluster.status, Status::Provisioned);
        if standing {
            // It was declared as being there, and we were given no way to it: its agent is.
            return Ok(Reach::NotOurs);
        }
        let way = match self.way(cluster).await {
            Ok(Some(way)) => way,
            Ok(None) => return Ok(Reach::NotOurs),
            Err(error) => return Ok(Reach::NoWay(error.to_string())),
        };
        let parameters = parameters(&self.fleet, cluster);
        self.with_handover(cluster, &parameters, async |handover| {
            if !cluster.spec.deleting {
                let is_so = self.keeper.is_so(&cluster.id, &handover.objects());
                return Ok(Reach::Ours { is_so, left: true });
            }
            let mut left = false;
            for root in handover.roots() {
                left |= way.get(&root).await?.is_some();
            }
            Ok(Reach::Ours { is_so: false, left })
        })
        .await
    }

    async fn with_handover<T>(
        &self,
        cluster: &Cluster,
        parameters: &BTreeMap<String, String>,
        work: impl AsyncFnOnce(Handover<'_>) -> Result<T>,
    ) -> Result<T> {
        let config = &self.fleet.config.kubernetes;
        let pull_secret = match &config.pull_secret_file {
            None => String::new(),
            Some(file) => std::fs::read_to_string(file).map_err(|error| {
                Error::unavailable(format!("the pull secret {}", file.display()), error)
            })?,
        };
        let rules = self.fleet.rules();
        let manifests = rules.kinds.values().flat_map(|kind| &kind.file.manifests);
        let kinds: Vec<GroupVersionKind> = manifests
            .filter_map(|manifest| kubernetes::Name::of(manifest).ok())
            .map(|name| name.kind())
            .collect();
        let pull_secret = pull_secret.as_str();
        let handover =
            Handover { config, cluster: &cluster.id, parameters, pull_secret, kinds: &kinds };
        work(handover).await
    }

    /// Writes down what went wrong, so that it can be read where the cluster is.
    async fn said(&self, attempt: &Attempt, error: Error) -> Error {
        let text = error.to_string();
        if let Ok(mut cluster) = Cluster::of(&attempt.object)
            && cluster.seen.reason != text
        {
            cluster.seen.reason = text.chars().take(1_024).collect();
            let change = written(&attempt.object, &cluster, "retrying", attempt.now());
            if let Err(error) = attempt.record(change).await {
                tracing::debug!(%error, "a reason could not be written down");
            }
        }
        error
    }

    async fn carry_out(&self, cluster: &Cluster, step: &Step) -> Result<()> {
        let fleet = &self.fleet;
        match step {
            Step::Provision => self.terraform.apply(&wanted(cluster)).await.map(drop),
            Step::Destroy => {
                let asked = cluster.seen.provider_asked;
                self.terraform.destroy(&wanted(cluster), asked).await?;
                self.forget(&cluster.id);
                Ok(())
            }
            Step::Terraform => {
                let Some(way) = self.way(cluster).await? else { return Ok(()) };
                let parameters = parameters(fleet, cluster);
                self.with_handover(cluster, &parameters, async |handover| {
                    self.keeper.put(&cluster.id, &way, handover.objects()).await
                })
                .await
                // An older API server may refuse what its successor takes.
                .map_err(|error| match error {
                    Error::Invalid { message, .. } => Error::unavailable(message, "refused"),
                    error => error,
                })
            }
            Step::TakeOff => {
                self.keeper.forget(&cluster.id);
                let Some(way) = self.way(cluster).await? else { return Ok(()) };
                self.with_handover(cluster, &BTreeMap::new(), async |handover| {
                    for root in handover.roots() {
                        way.delete(&root).await?;
                    }
                    Ok(())
                })
                .await
            }
            Step::EnsureClient => fleet.sso.ensure(&clients::agent(fleet, cluster)).await,
            Step::RemoveClient => {
                self.forget(&cluster.id);
                fleet.sso.remove(&clients::agent_client(&cluster.id)).await
            }
            Step::WouldGo => {
                tracing::info!(cluster = cluster.id, "dry run: this cluster would be taken away");
                Ok(())
            }
        }
    }

    fn forget(&self, id: &str) {
        self.keeper.forget(id);
        self.ways.lock().remove(id);
    }
}

#[async_trait]
impl Worker for Clusters {
    type Observed = World;
    type Step = Step;

    fn kind(&self) -> &str {
        cluster::KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<World> {
        let fleet = &self.fleet;
        let cluster = Cluster::of(&attempt.object)?;
        let deleting = cluster.spec.deleting;
        let has_client = fleet.sso_is_outside && cluster.spec.provider != Provider::Local;
        let client_is_so = match deleting || !has_client || cluster.status == Status::Failed {
            true => true,
            false => fleet.sso.is_so(&clients::agent(fleet, &cluster)).await?,
        };
        let made = match cluster.spec.provider {
            Provider::Terraform if cluster.status == Status::Provisioning => {
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
        Ok(World {
            instances: on_it.len(),
            heard: fleet.last_heard(&cluster),
            lost_after: seconds(config.agent.lost_after_s),
            recheck: seconds(config.kubernetes.recheck_s.min(config.timeouts.recheck_s)),
            patience: seconds(config.timeouts.cluster_s),
            has_client,
            client_is_so,
            made: made.map_or(Made::NotYet, |made| Made::There {
                dns_name: made.dns_name,
                external_id: made.external_id,
            }),
            reach: if force { Reach::NotOurs } else { self.reach(&cluster).await? },
            spare: scale::spare(fleet, &cluster, on_it.len()),
            wakes: on_it.iter().map(|row| told(&row.instance, now)).collect(),
        })
    }

    fn decide(&self, object: &Object, world: &World, now: Timestamp) -> Decision<Step> {
        match Cluster::of(object) {
            Ok(_) if object.deleted_at.is_some() => Decision::idle(Requeue::Never),
            Ok(cluster) => decide(object, &cluster, world, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<()> {
        let cluster = Cluster::of(&attempt.object)?;
        match self.carry_out(&cluster, step).await {
            Err(error) => Err(self.said(attempt, error).await),
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
fn told(instance: &Instance, now: Timestamp) -> Wake {
    let early = matches!(instance.status, instance::Status::Accepted | instance::Status::Preparing);
    let due = if early { now.plus(PAUSE) } else { now };
    crate::api::instances::wake(instance, due)
}

/// Makes someone look at a cluster.
pub async fn wake(fleet: &Fleet, id: &str, due: Timestamp) -> Result<()> {
    let key = cluster::key(id);
    let wakes = vec![Wake::new(key, "", due)];
    let change = Change { wakes, ..Change::default() };
    kernel::store::commit(fleet.store.as_ref(), change, fleet.ambient.now()).await.map(drop)
}

fn wanted(cluster: &Cluster) -> Wanted {
    Wanted {
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
