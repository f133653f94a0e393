//! Reconciles instances of every kind.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::driver::{Attempt, Decision, Effect, Requeue, Worker};
use kernel::{Error, Object, Refusal, Result, Timestamp};

use crate::Fleet;
use crate::decide::instance::lifecycle::Event;
use crate::decide::instance::{
    Entitled, Observation, Step, decide, dns_records, instance_change, transition,
};
use crate::decide::promotion;
use crate::model::cluster::{self, Cluster};
use crate::model::dns::Record;
use crate::model::instance::{Instance, Phase, Promotion};
use crate::model::kind::Kind;
use crate::model::settings::QuotaType;
use crate::model::sso::canary_client_id;
use crate::ports::ams::Reservation;
use crate::ports::sso::canary_client;

pub struct InstanceWorker(pub Arc<Fleet>);

#[async_trait]
impl Worker for InstanceWorker {
    type Observed = Observation;
    type Step = Step;

    fn kind(&self) -> &str {
        "instance"
    }

    fn covers(&self, kind: &str) -> bool {
        self.0.catalogue().kind(kind).is_some()
    }

    async fn observe(&self, attempt: &Attempt) -> Result<Observation> {
        let fleet = &self.0;
        let catalogue = fleet.catalogue();
        let instance = Instance::from_object(&attempt.object)?;
        let kind = kind_of(fleet, &instance)?;
        let now = attempt.now();
        let cluster = self.cluster(attempt, &instance).await?;
        let unplaced = cluster.is_none()
            && instance.status.cluster_id.is_empty()
            && matches!(instance.phase, Phase::Accepted | Phase::Provisioning);
        let candidates = if unplaced { fleet.rank_clusters(&instance) } else { Vec::new() };
        let needs_client = kind.file.sso.canary && fleet.ports.sso_is_external;
        let client_matches = match instance.phase {
            // Nothing to compare: a new instance has no client yet, and a deleted one's is removed.
            Phase::Accepted | Phase::Preparing | Phase::Deprovision | Phase::Deleting => false,
            _ if needs_client => {
                fleet.ports.sso.matches(&canary_client(&fleet.secrets, &instance)).await?
            }
            _ => true,
        };
        let (found, dns_in_sync) = self.names(&instance).await?;
        let entitlement_ends = catalogue.quota.ends(&instance);
        let lapsed = entitlement_ends.is_some_and(|end| now >= end);
        let billing = kind.billing(&instance.spec.instance_type, &instance.spec.billing_model);
        let grace_days = billing.map_or(0, |billing| billing.grace_days);
        Ok(Observation {
            cluster,
            scale_up: unplaced
                .then(|| super::autoscale::scale_up(fleet, &kind, &instance))
                .flatten(),
            candidates,
            fresh_id: attempt.ambient().id(),
            operator: kind.file.versions.as_ref().map(|versions| versions.operator.clone()),
            needs_client,
            client_matches,
            has_dns: fleet.ports.dns.is_some() && kind.file.dns.is_some(),
            records: found,
            dns_in_sync,
            reserves: fleet.config.quota_type == QuotaType::Ams,
            entitled: if lapsed { Entitled::No { grace_days } } else { Entitled::Yes },
            entitlement_ends,
            denied: catalogue.access.denied.contains(&instance.owner),
            domain: fleet.config.domain.clone(),
            timeouts: fleet.config.timeouts.clone(),
        })
    }

    fn decide(&self, object: &Object, observed: &Observation, now: Timestamp) -> Decision<Step> {
        match Instance::from_object(object) {
            Ok(instance) => decide(object, &instance, observed, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<Effect> {
        self.execute_step(attempt, step).await.map(|()| Effect::Done)
    }
}

impl InstanceWorker {
    async fn execute_step(&self, attempt: &Attempt, step: &Step) -> Result<()> {
        let fleet = &self.0;
        let instance = Instance::from_object(&attempt.object)?;
        match step {
            Step::Record(change) => attempt.record((**change).clone()).await,
            Step::RecordOnCommit(change) => {
                attempt.defer_to_commit((**change).clone());
                Ok(())
            }
            Step::EnsureClient => {
                let client = canary_client(&fleet.secrets, &instance);
                match fleet.ports.sso.ensure(&client).await {
                    Err(error) => self.prepare_failed(attempt, &instance, error).await,
                    done => done,
                }
            }
            Step::RemoveClient => fleet.ports.sso.remove(&canary_client_id(&instance.id)).await,
            Step::UpsertRecords(records) => {
                let Some(dns) = &fleet.ports.dns else { return Ok(()) };
                let mut next = instance;
                next.status.dns_change = dns.upsert(records).await?;
                next.status.waiting_for = "its names to be known everywhere".into();
                attempt
                    .record(instance_change(&attempt.object, &next, "names", attempt.now()))
                    .await
            }
            Step::RemoveRecords(records) => match &fleet.ports.dns {
                Some(dns) => dns.remove(records).await,
                None => Ok(()),
            },
            Step::Reserve => self.reserve(attempt, instance).await,
            Step::ReleaseReservation => match &fleet.ports.ams {
                Some(ams) => ams.release(&instance.spec.subscription_id).await,
                None => Ok(()),
            },
            Step::Promote => self.promote(attempt, instance).await,
            Step::CreateCluster(scale_up) => {
                super::autoscale::create_cluster(fleet, scale_up).await
            }
        }
    }

    /// The cluster of an instance. Before it is on a data plane the index suffices; afterwards, and if
    /// the index does not know the cluster, the store decides: a step for an instance without a
    /// cluster cannot be undone, and an instance that waits for a deleted one waits for ever.
    async fn cluster(
        &self,
        attempt: &Attempt,
        instance: &Instance,
    ) -> Result<Option<Arc<Cluster>>> {
        let id = &instance.status.cluster_id;
        if id.is_empty() {
            return Ok(None);
        }
        let early = matches!(instance.phase, Phase::Accepted | Phase::Preparing);
        if let Some(cluster) = self.0.index.cluster(id).filter(|_| early) {
            return Ok(Some(cluster));
        }
        let stored = attempt.store().object(&cluster::key(id)).await?;
        let stored = stored.filter(|object| object.deleted_at.is_none());
        Ok(stored.map(|object| Cluster::from_object(&object)).transpose()?.map(Arc::new))
    }

    async fn names(&self, instance: &Instance) -> Result<(Vec<Record>, bool)> {
        let (Some(dns), Some(routes)) = (&self.0.ports.dns, &instance.status.routes) else {
            return Ok((Vec::new(), true));
        };
        if instance.phase.is_going() || routes.is_empty() {
            return Ok((Vec::new(), true));
        }
        let names: Vec<String> =
            dns_records(routes).into_iter().map(|record| record.name).collect();
        let found = dns.find(&names).await?;
        let change = &instance.status.dns_change;
        let done = instance.status.routes_created || change.is_empty();
        let in_sync = done || dns.in_sync(change).await?;
        Ok((found, in_sync))
    }

    /// Fails an instance whose client the SSO system refuses, at once for a permanent error and after
    /// the timeout for a transient one.
    async fn prepare_failed(
        &self,
        attempt: &Attempt,
        instance: &Instance,
        error: Error,
    ) -> Result<()> {
        let limit = std::time::Duration::from_secs(self.0.config.timeouts.preparing_s);
        let early = attempt.now() < instance.created_at.plus(limit);
        let preparing = matches!(instance.phase, Phase::Accepted | Phase::Preparing);
        if !preparing || (early && error.class() == kernel::Class::Transient) {
            return Err(error);
        }
        let object = attempt.store().object(&attempt.object.key).await?;
        let object = object.ok_or_else(|| Error::NotFound(attempt.object.key.to_string()))?;
        let mut next = Instance::from_object(&object)?;
        next.status.failed_reason = format!("its client could not be made: {error}");
        let (change, _) = transition(&object, &next, Event::GiveUp, attempt.now());
        attempt.record(change).await?;
        Err(error)
    }

    async fn reserve(&self, attempt: &Attempt, instance: Instance) -> Result<()> {
        let Some(ams) = &self.0.ports.ams else { return Ok(()) };
        let kind = kind_of(&self.0, &instance)?;
        let reservation = reservation(&kind, &instance);
        let mut next = instance;
        let change = match ams.reserve(&reservation).await? {
            Some(subscription) => {
                next.spec.subscription_id = subscription;
                instance_change(&attempt.object, &next, "reserved", attempt.now())
            }
            None => {
                next.status.failed_reason = "the organisation's quota does not suffice".into();
                transition(&attempt.object, &next, Event::GiveUp, attempt.now()).0
            }
        };
        attempt.record(change).await
    }

    /// Changes the billing model: takes the new quota and releases the old one in one transaction. If
    /// that fails, the instance records why.
    async fn promote(&self, attempt: &Attempt, instance: Instance) -> Result<()> {
        let Some(promotion) = instance.spec.promotion.clone() else { return Ok(()) };
        let fleet = &self.0;
        let kind = kind_of(fleet, &instance)?;
        let catalogue = fleet.catalogue();
        let settings = fleet.config.quota_settings();
        let (mut next, take) = promotion::promoted(
            &instance,
            &promotion,
            (&settings, &catalogue.quota, &kind),
            attempt.now(),
        );
        if let Some(ams) = &fleet.ports.ams {
            let replaces = instance.spec.subscription_id.clone();
            let wanted = Reservation { replaces, ..reservation(&kind, &next) };
            match ams.reserve(&wanted).await? {
                // Before it is recorded: after a crash, the new one is found and this is repeated.
                Some(subscription) => {
                    ams.release(&wanted.replaces).await?;
                    next.spec.subscription_id = subscription;
                }
                None => {
                    return self
                        .not_promoted(attempt, instance, "the quota does not suffice")
                        .await;
                }
            }
        }
        let mut change = instance_change(&attempt.object, &next, "promoted", attempt.now());
        if next.spec.quota_counter != instance.spec.quota_counter {
            change.releases = instance.releases([instance.spec.quota_counter.clone()]);
        }
        change.takes.extend(take);
        match attempt.record(change).await {
            Err(Error::Refused(Refusal::Limit { used, limit, .. })) => {
                let why = format!("{used} of {limit} allowed units are used");
                self.not_promoted(attempt, instance, &why).await
            }
            done => done,
        }
    }

    async fn not_promoted(&self, attempt: &Attempt, instance: Instance, why: &str) -> Result<()> {
        let mut next = instance;
        if let Some(Promotion { failed, .. }) = &mut next.spec.promotion {
            *failed = why.into();
        }
        attempt.record(instance_change(&attempt.object, &next, "not_promoted", attempt.now())).await
    }
}

fn kind_of(fleet: &Fleet, instance: &Instance) -> Result<Arc<Kind>> {
    let kind = fleet.catalogue().kind(&instance.kind).cloned();
    kind.ok_or_else(|| Error::unavailable(format!("the kind `{}`", instance.kind), "no such file"))
}

fn reservation(kind: &Kind, instance: &Instance) -> Reservation {
    let spec = &instance.spec;
    let billing = kind.billing(&spec.instance_type, &spec.billing_model);
    Reservation {
        account: instance.owner.clone(),
        org: instance.org.clone(),
        instance: instance.id.clone(),
        product: billing.map(|b| b.product.clone()).unwrap_or_default(),
        resource: billing.map(|b| b.resource.clone()).unwrap_or_default(),
        billing_model: billing.map(|b| b.model().to_owned()).unwrap_or_default(),
        billing_account: Some(spec.billing_cloud_account_id.clone()).filter(|id| !id.is_empty()),
        marketplace: spec.marketplace.clone(),
        az_type: if spec.multi_az { "multi" } else { "single" }.into(),
        units: spec.units,
        display_name: instance.name.clone(),
        replaces: String::new(),
    }
}
