//! Creates an instance: validates in the order that clients expect.

use std::time::Duration;

use kernel::command::{AuditFields, CommandContext, Decided};
use kernel::identity::Principal;
use kernel::{Change, Json, Refusal, Result, Timestamp};

use super::instance::InstanceCommand;
use crate::Fleet;
use crate::decide::admission::{self, Admitted, limit_error, no_room};
use crate::decide::instance::{assign_cluster, placed_on};
use crate::model::catalogue::Catalogue;
use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Phase, Spec, Status, name_counter, region_counter};
use crate::model::kind::{Billing, InstanceType, Kind};
use crate::model::payload::Payload;
use crate::model::quota::Quota;
use crate::model::settings::{QuotaType, Scaling};
use crate::ports::ams::Ams;

pub async fn decide(
    command: &InstanceCommand,
    cx: &CommandContext<'_>,
    body: &Payload,
) -> Result<Decided<Json>> {
    // Names, capacity and limits are at least as new as the request.
    command.fleet.index.catch_up().await?;
    let admitted = validate(command, cx.principal, body, cx.now).await?;
    let fleet = &command.fleet;
    let assign =
        fleet.config.scaling != Scaling::Auto || !admitted.instance.spec.own_cluster_id.is_empty();
    let mut instance = admitted.instance.clone();
    let mut takes = admitted.takes.clone();
    if assign {
        let best = fleet.rank_clusters(&instance).into_iter().next();
        let best = best.filter(|verdict| verdict.rejection.is_none());
        let cluster = best.ok_or_else(|| no_room(&instance))?.cluster;
        takes.push(assign_cluster(&mut instance, &cluster));
        if let Some(versions) = &command.kind.file.versions {
            let newest = cluster.status.newest_versions(&instance.kind, &versions.operator);
            instance.spec.versions = newest.unwrap_or_default().into();
        }
    }
    let write = instance.new_draft().create("accepted");
    let audit = AuditFields { after: write.object.spec.clone(), ..AuditFields::of(&write.object) };
    let wakes = vec![instance.wake(instance.created_at)];
    let depends_on = assign.then(|| placed_on(&instance));
    let change = Change { takes, depends_on, wakes, ..Change::from(write) };
    let (kind, capacity) = (command.kind.clone(), instance.status.capacity_counter.clone());
    let reply = command.render(&instance)?;
    Ok(Decided::new(202, reply, audit).change(change).on_refused(move |refusal| match refusal {
        // A concurrent create took the last capacity: another cluster may have some.
        Refusal::Limit { counter, .. } if counter == capacity => Ok(()),
        refusal => Err(limit_error(&kind, &admitted, refusal.into())),
    }))
}

async fn validate(
    command: &InstanceCommand,
    who: &Principal,
    body: &Payload,
    now: Timestamp,
) -> Result<Admitted> {
    let InstanceCommand { fleet, catalogue, kind, .. } = command;
    let kind = &**kind;
    let (name, fields) = admission::name_and_fields(kind, body)?;
    // Checked early for the order of errors; the commit guarantees it.
    if fleet.index.has_name(kind.name(), &who.org, name) {
        return Err(admission::name_taken(kind));
    }
    if who.subject.is_empty() || who.org.is_empty() {
        return Err(ErrorCode::Forbidden.default_error());
    }
    let (cloud, region) = admission::place(&catalogue.providers, body)?;
    let of = instance_type(command, who, now).await?;
    let Some(offer) = region.offer(&of.id) else {
        let why = format!("instance type '{}' not supported for region '{}'", of.id, region.name);
        return Err(ErrorCode::InstanceType.error(why));
    };
    let size = admission::size(of, body.text("plan")?.unwrap_or_default())?;
    let billing = admission::billing(of, body)?;
    let multi_az = if kind.file.multi_az_asked {
        body.boolean("multi_az")?.unwrap_or(of.multi_az)
    } else {
        of.multi_az
    };
    if open_terms(fleet, who).await?.is_some() {
        return Err(ErrorCode::TermsNotAccepted.default_error());
    }
    let text = |name: &str| body.text(name).ok().flatten().unwrap_or_default().to_owned();
    let settings = fleet.config.quota_settings();
    let scope = (&settings, &catalogue.quota, kind);
    let ((quota_counter, limit), holder) = admission::quota(scope, who, of, billing, now);
    let lifespan_ends = size.lifespan_s.map(|s| now.plus(Duration::from_secs(s.unsigned_abs())));
    let spec = Spec {
        cloud_provider: cloud.name.clone(),
        region: region.name.clone(),
        multi_az,
        instance_type: of.id.clone(),
        size_id: size.id.clone(),
        units: size.units,
        billing_model: billing.id.clone(),
        marketplace: text("marketplace"),
        billing_cloud_account_id: text("billing_cloud_account_id"),
        own_cluster_id: text("cluster_id"),
        account: who.account.clone(),
        quota_type: settings.quota_type.label().into(),
        quota_counter: quota_counter.clone(),
        fields: fields.into(),
        expires_at: lifespan_ends,
        lifespan_ends,
        ..Spec::default()
    };
    let instance = Instance {
        id: fleet.ambient.id(),
        kind: kind.name().into(),
        org: who.org.clone(),
        owner: who.subject.clone(),
        name: name.into(),
        phase: Phase::Accepted,
        created_at: now,
        updated_at: now,
        revision: 1,
        spec,
        status: Status { since: now, ..Status::default() },
    };
    let amount = if of.trial { 1 } else { size.units };
    let mut takes = vec![
        instance.take(name_counter(kind.name(), &who.org, name), 1, 1),
        instance.take(quota_counter, amount, limit),
    ];
    if let (Some(limit), true) = (offer.limit, instance.spec.own_cluster_id.is_empty()) {
        let counter = region_counter(kind.name(), &cloud.name, &region.name, &of.id);
        takes.push(instance.take(counter, size.units, limit));
    }
    Ok(Admitted { instance, takes, holder, trial_name: of.name.clone() })
}

/// Returns the first type for which the caller has quota, else the trial.
async fn instance_type<'c>(
    command: &'c InstanceCommand,
    who: &Principal,
    now: Timestamp,
) -> Result<&'c InstanceType> {
    let InstanceCommand { fleet, catalogue, kind, .. } = command;
    let kind = &**kind;
    let settings = fleet.config.quota_settings();
    if let (QuotaType::Ams, Some(ams)) = (settings.quota_type, &fleet.ports.ams) {
        let granted = granted_by_ams(&**ams, who, kind.billings().filter(|(of, _)| !of.trial));
        return granted.await?.map_or_else(|| admission::trial_type(&settings, kind), Ok);
    }
    let granted = admission::granted_type((&settings, &catalogue.quota, kind), who, now);
    granted.map_or_else(|| admission::trial_type(&settings, kind), Ok)
}

/// Returns the first of these types for which the caller's organisation has quota in AMS.
pub async fn granted_by_ams<'k>(
    ams: &dyn Ams,
    who: &Principal,
    billings: impl Iterator<Item = (&'k InstanceType, &'k Billing)>,
) -> Result<Option<&'k InstanceType>> {
    for (of, billing) in billings {
        let quota = ams.quota(&who.org, &billing.product, billing.model()).await;
        let quota = quota.map_err(|error| {
            tracing::warn!(%error, "reading the quota failed");
            ErrorCode::QuotaCheck.default_error()
        })?;
        if quota.is_some_and(|quota| quota.allowed > 0) {
            return Ok(Some(of));
        }
    }
    Ok(None)
}

/// Returns how much of a type the caller may have, and how much is in use.
pub async fn quota(
    fleet: &Fleet,
    catalogue: &Catalogue,
    who: &Principal,
    (kind, of, billing): (&Kind, &InstanceType, &Billing),
) -> Result<Option<Quota>> {
    if of.trial && !fleet.config.trial.allowed {
        return Ok(None);
    }
    if let (QuotaType::Ams, Some(ams), false) =
        (fleet.config.quota_type, &fleet.ports.ams, of.trial)
    {
        return ams.quota(&who.org, &billing.product, billing.model()).await;
    }
    let max = fleet.config.max_allowed_instances;
    if !of.trial && catalogue.quota.entitlement(&who.org, &who.subject, max).is_none() {
        return Ok(None);
    }
    let now = fleet.ambient.now();
    let settings = fleet.config.quota_settings();
    let scope = (&settings, &catalogue.quota, kind);
    let ((counter, allowed), _) = admission::quota(scope, who, of, billing, now);
    let consumed = fleet.store.counter(&counter).await?.map_or(0, |counter| counter.used);
    Ok((allowed > 0).then_some(Quota { allowed, consumed }))
}

/// Returns the URL of terms that the caller has not accepted yet.
pub async fn open_terms(fleet: &Fleet, who: &Principal) -> Result<Option<String>> {
    let terms = &fleet.config.terms;
    match &fleet.ports.ams {
        Some(ams) if terms.required => {
            ams.open_terms(&who.subject, &terms.site, &terms.event).await
        }
        _ => Ok(None),
    }
}
