//! Creates an instance: validates in the order that clients expect, then commits once.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use kernel::change::{AuditDraft, CommandReply, EventDraft, Take, Wake, Write};
use kernel::http::{Idempotent, commit_idempotent};
use kernel::identity::Principal;
use kernel::{Change, Error, Json, Object, Refusal, Result, Timestamp};

use crate::Fleet;
use crate::api::kind_api::Call;
use crate::api::wire::request::require_async;
use crate::decide::admission::{self, Admitted, limit_error, no_room};
use crate::decide::instance::assign_cluster;
use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Phase, Spec, Status, name_counter, region_counter};
use crate::model::kind::{Billing, InstanceType};
use crate::model::payload::{Payload, parse_object};
use crate::model::settings::{QuotaType, Scaling};
use crate::ports::ams::Ams;

pub async fn create(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    let (bytes, idempotent) = call.idempotent().await?;
    let body = Payload(parse_object(&bytes)?);
    require_async(&call)?;
    let store = call.fleet.store.clone();
    let work = async {
        // Names, capacity and limits are at least as new as the request.
        call.fleet.index.catch_up().await?;
        let admitted = validate(&call, &who, &body).await?;
        place_and_commit(&call, &who, admitted, &idempotent).await
    };
    idempotent.run(store.as_ref(), work).await
}

async fn validate(call: &Call, who: &Principal, body: &Payload) -> Result<Admitted> {
    let kind = &*call.kind;
    let now = call.fleet.ambient.now();
    let (name, fields) = admission::name_and_fields(kind, body)?;
    // Checked early for the order of errors; the commit guarantees it.
    if call.fleet.index.has_name(kind.name(), &who.org, name) {
        return Err(admission::name_taken(kind));
    }
    if who.subject.is_empty() || who.org.is_empty() {
        return Err(ErrorCode::Forbidden.default_error());
    }
    let (cloud, region) = admission::place(&call.catalogue.providers, body)?;
    let of = instance_type(call, who, now).await?;
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
    if open_terms(&call.fleet, who).await?.is_some() {
        return Err(ErrorCode::TermsNotAccepted.default_error());
    }
    let text = |name: &str| body.text(name).ok().flatten().unwrap_or_default().to_owned();
    let settings = call.fleet.config.quota_settings();
    let scope = (&settings, &call.catalogue.quota, kind);
    let ((quota_counter, limit), holder) = admission::quota(scope, who, of, billing, now);
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
        expires_at: size.lifespan_s.map(|s| now.plus(Duration::from_secs(s.unsigned_abs()))),
        ..Spec::default()
    };
    let instance = Instance {
        id: call.fleet.ambient.id(),
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
    call: &'c Call,
    who: &Principal,
    now: Timestamp,
) -> Result<&'c InstanceType> {
    let kind = &*call.kind;
    let settings = call.fleet.config.quota_settings();
    if let (QuotaType::Ams, Some(ams)) = (settings.quota_type, &call.fleet.ports.ams) {
        let granted = granted_by_ams(&**ams, who, kind.billings().filter(|(of, _)| !of.trial));
        return granted.await?.map_or_else(|| admission::trial_type(&settings, kind), Ok);
    }
    let granted = admission::granted_type((&settings, &call.catalogue.quota, kind), who, now);
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

/// Commits the instance, on the first cluster with capacity if clusters are assigned at creation.
async fn place_and_commit(
    call: &Call,
    who: &Principal,
    admitted: Admitted,
    idempotent: &Idempotent,
) -> Result<Response> {
    let fleet = &call.fleet;
    let assign =
        fleet.config.scaling != Scaling::Auto || !admitted.instance.spec.own_cluster_id.is_empty();
    if !assign {
        let made = commit(call, who, &admitted, admitted.instance.clone(), None, idempotent).await;
        return made.map_err(|error| limit_error(&call.kind, &admitted, error));
    }
    // A concurrent create may take the last capacity between the ranking and the commit.
    for verdict in fleet.rank_clusters(&admitted.instance) {
        if verdict.rejection.is_some() {
            break;
        }
        let mut instance = admitted.instance.clone();
        let take = assign_cluster(&mut instance, &verdict.cluster);
        if let Some(versions) = &call.kind.file.versions {
            let newest = verdict.cluster.newest_versions(&instance.kind, &versions.operator);
            instance.spec.versions = newest.unwrap_or_default().into();
        }
        let counter = instance.status.capacity_counter.clone();
        match commit(call, who, &admitted, instance, Some(take), idempotent).await {
            Err(Error::Refused(Refusal::Limit { counter: full, .. })) if full == counter => {}
            Err(error) => return Err(limit_error(&call.kind, &admitted, error)),
            done => return done,
        }
    }
    Err(no_room(&admitted.instance))
}

async fn commit(
    call: &Call,
    who: &Principal,
    admitted: &Admitted,
    instance: Instance,
    capacity: Option<Take>,
    idempotent: &Idempotent,
) -> Result<Response> {
    let now = instance.created_at;
    let key = instance.key();
    let mut object =
        Object::new(key.clone(), &instance.org, &instance.owner, &instance.name, "", now);
    instance.write_to(&mut object, now);
    let wake = Wake::new(key.clone(), &instance.org, now);
    let audit =
        call.context.audit(who, &format!("{}.create", instance.kind), key.as_str(), &who.org);
    let change = Change {
        takes: admitted.takes.iter().cloned().chain(capacity).collect(),
        wakes: vec![wake],
        event: Some(EventDraft::for_object(&object, "accepted")),
        audit: Some(AuditDraft { after: object.spec.clone(), ..audit }),
        write: Some(Write::Create(object)),
        ..Change::default()
    };
    let view = call.fleet.scope(&call.kind, &instance, None);
    let text = String::from_utf8(call.kind.response.render(&view));
    let text =
        text.map_err(|error| Error::internal("the rendered instance is not UTF-8", error))?;
    let reply = CommandReply { status: 202, body: Json::stored(text)? };
    commit_idempotent(&call.app, idempotent, change, reply).await
}
