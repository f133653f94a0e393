//! `POST` of an instance: every rule in the order in which clients know them, then one transaction.

use std::time::Duration;

use axum::response::Response;
use kernel::change::{AuditDraft, CommandReply, EventDraft, Take, Wake, Write};
use kernel::http::{Idempotency, commit_idempotent};
use kernel::identity::Principal;
use kernel::{Change, Error, Json, Key, Object, Refusal, Result, Timestamp};
use serde_json::Value;

use super::payload::{NAME_PATTERN, Payload, check_field, check_length, is_name, parse_object};
use super::reply;
use super::router::Call;
use crate::Fleet;
use crate::config::{QuotaType, Scaling};
use crate::decide::instance::place_on;
use crate::model::code::Code;
use crate::model::instance::{
    Instance, Seen, Spec, Status, name_counter, region_counter, trial_counter,
};
use crate::model::kind::{Billing, InstanceType, Kind};
use crate::model::providers::{Cloud, Region};
use crate::rules::Rules;

const NAME_MAX: usize = 32;

pub async fn create(mut call: Call, who: &Principal) -> Result<Response> {
    let idempotency = idempotency(&mut call).await?;
    let bytes = call.bytes().await?;
    let body = Payload(parse_object(&bytes)?);
    call.must_be_async()?;
    let idempotent = idempotency.of(&bytes);
    let store = call.fleet.store.clone();
    let work = async {
        // Names, room and limits as they were when it was asked for, or later.
        call.fleet.index.catch_up().await?;
        let asked = validate(&call, who, &body).await?;
        place_and_commit(&call, who, asked, &idempotent).await
    };
    idempotent.run(store.as_ref(), work).await.map(|r| reply::with_operation(&call.context, r))
}

/// The caller's `Idempotency-Key`; the guard has set who that is.
async fn idempotency(call: &mut Call) -> Result<Idempotency> {
    use axum::extract::FromRequestParts as _;
    Idempotency::from_request_parts(&mut call.parts, &()).await
}

/// What was asked for, found right.
struct Asked {
    instance: Instance,
    takes: Vec<Take>,
    /// For messages about the quota.
    holder: String,
    trial_name: String,
}

async fn validate(call: &Call, who: &Principal, body: &Payload) -> Result<Asked> {
    let kind = &*call.kind;
    let now = call.fleet.ambient.now();
    // All types first: a body that cannot be read is wrong before anything else is.
    for field in [
        "cloud_provider",
        "region",
        "plan",
        "billing_model",
        "marketplace",
        "billing_cloud_account_id",
        "cluster_id",
    ] {
        body.text(field)?;
    }
    let fields = own_fields(kind, body)?;
    let name = body.text("name")?.unwrap_or_default();
    check_length("name", name, 1, NAME_MAX)?;
    if !is_name(name) {
        return Err(Code::Name.error(format!("name does not match {NAME_PATTERN}")));
    }
    // Early, for the order of errors; the commit makes sure.
    if call.fleet.index.has_name(kind.name(), &who.org, name) {
        return Err(name_taken(kind));
    }
    if who.subject.is_empty() || who.org.is_empty() {
        return Err(Code::Forbidden.plain());
    }
    let (cloud, region) = place(call, body)?;
    let of = instance_type(call, who, now).await?;
    let Some(offer) = region.offer(&of.id) else {
        let why = format!("instance type '{}' not supported for region '{}'", of.id, region.name);
        return Err(Code::InstanceType.error(why));
    };
    let size = size(of, body.text("plan")?.unwrap_or_default())?;
    let billing = billing(of, body)?;
    let multi_az = match kind.file.multi_az_asked {
        true => body.boolean("multi_az")?.unwrap_or(of.multi_az),
        false => of.multi_az,
    };
    if open_terms(&call.fleet, who).await?.is_some() {
        return Err(Code::TermsNotAccepted.plain());
    }
    let text = |name: &str| body.text(name).ok().flatten().unwrap_or_default().to_owned();
    let mut spec = Spec {
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
        quota_type: call.fleet.config.quota_type.label().into(),
        fields: fields.into(),
        expires_at: size.lifespan_s.map(|s| now.plus(Duration::from_secs(s.unsigned_abs()))),
        ..Spec::default()
    };
    let id = call.fleet.ambient.id();
    let holder_key = Key::new(kind.name(), &id).to_string();
    let take = |counter: String, amount: i64, limit: i64| Take {
        counter,
        holder: holder_key.clone(),
        amount,
        limit,
    };
    let mut takes = vec![take(name_counter(kind.name(), &who.org, name), 1, 1)];
    let scope = (&*call.fleet, &*call.rules, kind);
    let (quota, holder) = quota(scope, who, of, billing, now);
    spec.quota_counter = quota.0.clone();
    let amount = if of.trial { 1 } else { spec.units };
    takes.push(take(quota.0, amount, quota.1));
    if let (Some(limit), true) = (offer.limit, spec.own_cluster_id.is_empty()) {
        let counter = region_counter(kind.name(), &cloud.name, &region.name, &of.id);
        takes.push(take(counter, spec.units, limit));
    }
    let instance = Instance {
        id,
        kind: kind.name().into(),
        org: who.org.clone(),
        owner: who.subject.clone(),
        name: name.into(),
        status: Status::Accepted,
        created_at: now,
        updated_at: now,
        revision: 1,
        spec,
        seen: Seen { since: now, ..Seen::default() },
    };
    Ok(Asked { instance, takes, holder, trial_name: of.name.clone() })
}

fn name_taken(kind: &Kind) -> Error {
    Code::NameTaken.error(format!("{} cluster name is already used", kind.file.title))
}

fn own_fields(kind: &Kind, body: &Payload) -> Result<std::collections::BTreeMap<String, Value>> {
    let mut fields = std::collections::BTreeMap::new();
    for (name, field) in &kind.file.fields {
        let value = match body.0.get(name) {
            None | Some(Value::Null) if field.required => {
                return Err(
                    Code::Field.error(format!("Field validation failed: {name} is required"))
                );
            }
            None | Some(Value::Null) => field.default.clone(),
            Some(value) => value.clone(),
        };
        check_field(name, field, &value)?;
        if !value.is_null() {
            fields.insert(name.clone(), value);
        }
    }
    Ok(fields)
}

fn place<'c>(call: &'c Call, body: &Payload) -> Result<(&'c Cloud, &'c Region)> {
    let providers = &call.rules.providers;
    let asked = body.text("cloud_provider")?.unwrap_or_default();
    let cloud = match asked {
        "" => providers.default_cloud(),
        asked => providers.cloud(asked),
    };
    let cloud = cloud.ok_or_else(|| {
        let all: Vec<&str> =
            providers.supported_providers.iter().map(|cloud| cloud.name.as_str()).collect();
        Code::Provider.error(format!(
            "provider {asked} is not supported, supported providers are: [{}]",
            all.join(" ")
        ))
    })?;
    let asked = body.text("region")?.unwrap_or_default();
    let region = match asked {
        "" => cloud.default_region(),
        asked => cloud.region(asked),
    };
    let region = region.ok_or_else(|| {
        Code::Region.error(format!(
            "region {asked} is not supported for {}, supported regions are: [{}]",
            cloud.name,
            cloud.region_names()
        ))
    })?;
    Ok((cloud, region))
}

/// The first type of which the caller has quota, else the trial.
async fn instance_type<'c>(
    call: &'c Call,
    who: &Principal,
    now: Timestamp,
) -> Result<&'c InstanceType> {
    let kind = &*call.kind;
    let config = &call.fleet.config;
    if let (QuotaType::Ams, Some(ams)) = (config.quota_type, &call.fleet.ams) {
        for of in kind.file.types.iter().filter(|of| !of.trial) {
            for billing in &of.billing {
                let model = billing.models.first().map(String::as_str).unwrap_or_default();
                let quota = ams.quota(&who.org, &billing.product, model).await;
                let quota = quota.map_err(|error| {
                    tracing::warn!(%error, "the quota could not be asked for");
                    Code::QuotaCheck.plain()
                })?;
                if quota.is_some_and(|quota| quota.allowed > 0) {
                    return Ok(of);
                }
            }
        }
    } else if let Some(entitled) =
        call.rules.quota.entitlement(&who.org, &who.subject, config.max_allowed_instances)
        && let Some(first) = entitled.types(kind, now).first()
        && let Some(of) = kind.of_type(first)
    {
        return Ok(of);
    }
    match kind.trial() {
        Some(trial) if config.trial.allowed => Ok(trial),
        Some(trial) => {
            Err(Code::Forbidden.error(format!("{} instances are not allowed", trial.name)))
        }
        None => Err(Code::NoQuota.plain()),
    }
}

fn size<'t>(of: &'t InstanceType, plan: &str) -> Result<&'t crate::model::kind::Size> {
    let first = || of.sizes.first().ok_or_else(|| Error::internal("a kind", "it has no sizes"));
    if plan.is_empty() {
        return first();
    }
    let Some((asked, size)) = plan.split_once('.').filter(|(asked, _)| *asked == of.id) else {
        return Err(Code::BadRequest
            .error(format!("unable to detect instance type in plan provided: \"{plan}\"")));
    };
    let found = of.sizes.iter().find(|known| known.id == size);
    found.ok_or_else(|| Code::Plan.error(format!("unsupported plan provided: \"{asked}.{size}\"")))
}

fn billing<'t>(of: &'t InstanceType, body: &Payload) -> Result<&'t Billing> {
    let asked = body.text("billing_model")?.unwrap_or_default();
    let cluster = body.text("cluster_id")?.unwrap_or_default();
    let found = match asked {
        "" => of.billing.first(),
        asked => of.billing.iter().find(|billing| billing.id == asked),
    };
    let billing = found.ok_or_else(|| {
        let all: Vec<&str> = of.billing.iter().map(|billing| billing.id.as_str()).collect();
        Code::Billing.error(format!(
            "billing model '{asked}' is not supported for '{}' instances, supported are: [{}]",
            of.id,
            all.join(" ")
        ))
    })?;
    if billing.own_cluster && cluster.is_empty() {
        let why = format!(
            "cluster_id must be supplied when selected billing model is: \"{}\"",
            billing.id
        );
        return Err(Code::BadRequest.error(why));
    }
    let account = body.text("billing_cloud_account_id")?.unwrap_or_default();
    let marketplace = body.text("marketplace")?.unwrap_or_default();
    if !billing.account && !account.is_empty() {
        let why = format!("billing model '{}' takes no billing_cloud_account_id", billing.id);
        return Err(Code::Billing.error(why));
    }
    if account.is_empty() && !marketplace.is_empty() {
        return Err(Code::Billing.error("no billing account provided for the marketplace"));
    }
    Ok(billing)
}

/// The counter that it counts against, how much that may hold, and whose it is.
pub fn quota(
    (fleet, rules, kind): (&Fleet, &Rules, &Kind),
    who: &Principal,
    of: &InstanceType,
    billing: &Billing,
    now: Timestamp,
) -> ((String, i64), String) {
    let config = &fleet.config;
    if of.trial {
        let counter = trial_counter(kind.name(), &who.org, &who.subject);
        return ((counter, config.trial.max), String::new());
    }
    let max = config.max_allowed_instances;
    let Some(entitled) = rules.quota.entitlement(&who.org, &who.subject, max) else {
        // The backend decides; here it is only counted.
        let counter =
            format!("fleet/quota/{}/org/{}/{}/{}", kind.name(), who.org, of.id, billing.id);
        return ((counter, i64::MAX), format!("organization '{}'", who.org));
    };
    let counter = entitled.holder.counter(kind.name(), &of.id, &billing.id);
    let limit = match (config.quota_enforced, config.quota_type) {
        (true, QuotaType::List) => entitled.limit(kind, &of.id, &billing.id, now),
        _ => i64::MAX,
    };
    ((counter, limit), entitled.holder.describe())
}

/// Where terms are that the caller has still to accept; none, if there are none.
pub async fn open_terms(fleet: &Fleet, who: &Principal) -> Result<Option<String>> {
    let terms = &fleet.config.terms;
    match &fleet.ams {
        Some(ams) if terms.required => {
            ams.open_terms(&who.subject, &terms.site, &terms.event).await
        }
        _ => Ok(None),
    }
}

/// Writes the instance down, on the first cluster that still has room if clusters are given out
/// here.
async fn place_and_commit(
    call: &Call,
    who: &Principal,
    asked: Asked,
    idempotent: &kernel::http::Idempotent,
) -> Result<Response> {
    let fleet = &call.fleet;
    let here =
        fleet.config.scaling != Scaling::Auto || !asked.instance.spec.own_cluster_id.is_empty();
    if !here {
        return commit(call, who, &asked, asked.instance.clone(), None, idempotent).await;
    }
    // Another's instance may take the last room between the look and the commit.
    for judged in fleet.judge(&asked.instance) {
        if judged.against.is_some() {
            break;
        }
        let mut instance = asked.instance.clone();
        let take = place_on(&mut instance, &judged.cluster);
        if let Some(versions) = &call.kind.file.versions {
            let newest = judged.cluster.newest_versions(&instance.kind, &versions.operator);
            instance.spec.versions = newest.unwrap_or_default().into();
        }
        let counter = instance.seen.capacity_counter.clone();
        match commit(call, who, &asked, instance, take, idempotent).await {
            Err(Error::Refused(Refusal::Limit { counter: full, .. })) if full == counter => {}
            Err(error) => return Err(refused(call, &asked, error)),
            done => return done,
        }
    }
    Err(no_room(&asked.instance))
}

fn no_room(instance: &Instance) -> Error {
    let Spec { own_cluster_id, instance_type, region, .. } = &instance.spec;
    Code::TooMany.error(match own_cluster_id.as_str() {
        "" => format!(
            "region {region} cannot accept instance type: \"{instance_type}\" at this moment"
        ),
        id => format!(
            "cluster \"{id}\" cannot accept instance type: \"{instance_type}\" at this moment"
        ),
    })
}

/// A limit by its counter, as clients know it.
fn refused(call: &Call, asked: &Asked, error: Error) -> Error {
    let Error::Refused(Refusal::Limit { counter, limit, .. }) = &error else { return error };
    let part = counter.split('/').nth(1).unwrap_or_default();
    match part {
        "name" => name_taken(&call.kind),
        "trial" => {
            let (is, plural) = if *limit == 1 { ("is", "") } else { ("are", "s") };
            let name = &asked.trial_name;
            Code::TooMany.error(format!("only {limit} {name} instance{plural} {is} allowed"))
        }
        "quota" => Code::QuotaReached.error(format!(
            "{} has reached a maximum number of {limit} allowed {}",
            asked.holder, call.kind.file.units
        )),
        _ => no_room(&asked.instance),
    }
}

async fn commit(
    call: &Call,
    who: &Principal,
    asked: &Asked,
    instance: Instance,
    capacity: Option<Take>,
    idempotent: &kernel::http::Idempotent,
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
        takes: asked.takes.iter().cloned().chain(capacity).collect(),
        wakes: vec![wake],
        event: Some(EventDraft::of(&object, "accepted")),
        audit: Some(AuditDraft { after: object.spec.clone(), ..audit }),
        write: Some(Write::Create(object)),
        ..Change::default()
    };
    let view = call.fleet.view(&call.kind, &instance, None);
    let text = String::from_utf8(call.kind.response.render(&view));
    let text = text.map_err(|error| Error::internal("an answer", error))?;
    let answer = CommandReply { status: 202, body: Json::stored(text)? };
    let response = commit_idempotent(&call.app, idempotent, change, answer).await;
    response.map_err(|error| match error {
        // Only a limit of the cluster is tried elsewhere.
        Error::Refused(Refusal::Limit { ref counter, .. })
            if *counter == instance.seen.capacity_counter =>
        {
            error
        }
        error => refused(call, asked, error),
    })
}
