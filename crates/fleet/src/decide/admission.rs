//! Whether an instance may be created as requested. Each rule has its own error; the caller applies
//! them in the order that clients rely on.

use std::collections::BTreeMap;

use kernel::change::Take;
use kernel::identity::Principal;
use kernel::{Error, Refusal, Result, Timestamp};
use serde_json::Value;

use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Spec, trial_counter};
use crate::model::kind::{Billing, InstanceType, Kind, Size};
use crate::model::payload::{NAME_PATTERN, Payload, check_field, check_length, is_name};
use crate::model::providers::{Cloud, Providers, Region};
use crate::model::quota::{Holder, QuotaList};
use crate::model::settings::{QuotaSettings, QuotaType};

const NAME_MAX: usize = 32;

/// An instance that may be created, and the counters that it takes.
pub struct Admitted {
    pub instance: Instance,
    pub takes: Vec<Take>,
    /// For messages about the quota.
    pub holder: String,
    pub trial_name: String,
}

/// Checks the types of all fields first: an unreadable body is an error before any other. Returns the
/// name and the kind's own fields.
pub fn name_and_fields<'b>(
    kind: &Kind,
    body: &'b Payload,
) -> Result<(&'b str, BTreeMap<String, Value>)> {
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
        return Err(ErrorCode::Name.error(format!("name does not match {NAME_PATTERN}")));
    }
    Ok((name, fields))
}

pub fn name_taken(kind: &Kind) -> Error {
    ErrorCode::NameTaken.error(format!("{} cluster name is already used", kind.file.title))
}

fn own_fields(kind: &Kind, body: &Payload) -> Result<BTreeMap<String, Value>> {
    let mut fields = BTreeMap::new();
    for (name, field) in &kind.file.fields {
        let value = match body.0.get(name) {
            None | Some(Value::Null) if field.required => {
                return Err(
                    ErrorCode::Field.error(format!("Field validation failed: {name} is required"))
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

pub fn place<'c>(providers: &'c Providers, body: &Payload) -> Result<(&'c Cloud, &'c Region)> {
    let asked = body.text("cloud_provider")?.unwrap_or_default();
    let cloud = match asked {
        "" => providers.default_cloud(),
        asked => providers.cloud(asked),
    };
    let cloud = cloud.ok_or_else(|| {
        let all: Vec<&str> =
            providers.supported_providers.iter().map(|cloud| cloud.name.as_str()).collect();
        ErrorCode::Provider.error(format!(
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
        ErrorCode::Region.error(format!(
            "region {asked} is not supported for {}, supported regions are: [{}]",
            cloud.name,
            cloud.region_names()
        ))
    })?;
    Ok((cloud, region))
}

/// The first type that the quota list grants the caller.
pub fn granted_type<'k>(
    (settings, list, kind): (&QuotaSettings, &QuotaList, &'k Kind),
    who: &Principal,
    now: Timestamp,
) -> Option<&'k InstanceType> {
    let max = settings.max_allowed_instances;
    list.entitlement(&who.org, &who.subject, max)?.first_type(kind, now)
}

/// The type for callers without quota.
pub fn trial_type<'k>(settings: &QuotaSettings, kind: &'k Kind) -> Result<&'k InstanceType> {
    match kind.trial() {
        Some(trial) if settings.trials_allowed => Ok(trial),
        Some(trial) => {
            Err(ErrorCode::Forbidden.error(format!("{} instances are not allowed", trial.name)))
        }
        None => Err(ErrorCode::NoQuota.default_error()),
    }
}

pub fn size<'t>(ty: &'t InstanceType, plan: &str) -> Result<&'t Size> {
    let first = || ty.sizes.first().ok_or_else(|| Error::internal("a kind", "it has no sizes"));
    if plan.is_empty() {
        return first();
    }
    let Some((asked, size)) = plan.split_once('.').filter(|(asked, _)| *asked == ty.id) else {
        return Err(ErrorCode::BadRequest
            .error(format!("unable to detect instance type in plan provided: \"{plan}\"")));
    };
    let found = ty.sizes.iter().find(|known| known.id == size);
    found.ok_or_else(|| {
        ErrorCode::Plan.error(format!("unsupported plan provided: \"{asked}.{size}\""))
    })
}

pub fn billing<'t>(ty: &'t InstanceType, body: &Payload) -> Result<&'t Billing> {
    let asked = body.text("billing_model")?.unwrap_or_default();
    let cluster = body.text("cluster_id")?.unwrap_or_default();
    let found = match asked {
        "" => ty.billing.first(),
        asked => ty.billing.iter().find(|billing| billing.id == asked),
    };
    let billing = found.ok_or_else(|| {
        let all: Vec<&str> = ty.billing.iter().map(|billing| billing.id.as_str()).collect();
        ErrorCode::Billing.error(format!(
            "billing model '{asked}' is not supported for '{}' instances, supported are: [{}]",
            ty.id,
            all.join(" ")
        ))
    })?;
    if billing.own_cluster && cluster.is_empty() {
        let why = format!(
            "cluster_id must be supplied when selected billing model is: \"{}\"",
            billing.id
        );
        return Err(ErrorCode::BadRequest.error(why));
    }
    let account = body.text("billing_cloud_account_id")?.unwrap_or_default();
    let marketplace = body.text("marketplace")?.unwrap_or_default();
    if !billing.account && !account.is_empty() {
        let why = format!("billing model '{}' takes no billing_cloud_account_id", billing.id);
        return Err(ErrorCode::Billing.error(why));
    }
    if account.is_empty() && !marketplace.is_empty() {
        return Err(ErrorCode::Billing.error("no billing account provided for the marketplace"));
    }
    Ok(billing)
}

/// The quota counter of an instance and its limit, and a description of its holder.
pub fn quota(
    (settings, list, kind): (&QuotaSettings, &QuotaList, &Kind),
    who: &Principal,
    ty: &InstanceType,
    billing: &Billing,
    now: Timestamp,
) -> ((String, i64), String) {
    if ty.trial {
        let counter = trial_counter(kind.name(), &who.org, &who.subject);
        return ((counter, settings.trials_max), String::new());
    }
    let max = settings.max_allowed_instances;
    let Some(entitled) = list.entitlement(&who.org, &who.subject, max) else {
        // The quota backend decides; this only counts.
        let holder = Holder::Organisation(who.org.clone());
        let counter = holder.counter(kind.name(), &ty.id, &billing.id);
        return ((counter, i64::MAX), holder.describe());
    };
    let counter = entitled.holder.counter(kind.name(), &ty.id, &billing.id);
    let limit = if settings.enforced && settings.quota_type == QuotaType::List {
        entitled.limit(kind, &ty.id, &billing.id, now)
    } else {
        i64::MAX
    };
    ((counter, limit), entitled.holder.describe())
}

pub fn no_room(instance: &Instance) -> Error {
    let Spec { own_cluster_id, instance_type, region, .. } = &instance.spec;
    ErrorCode::TooMany.error(match own_cluster_id.as_str() {
        "" => format!(
            "region {region} cannot accept instance type: \"{instance_type}\" at this moment"
        ),
        id => format!(
            "cluster \"{id}\" cannot accept instance type: \"{instance_type}\" at this moment"
        ),
    })
}

/// The client's error for a limit that was reached.
pub fn limit_error(kind: &Kind, admitted: &Admitted, error: Error) -> Error {
    let Error::Refused(Refusal::Limit { counter, limit, .. }) = &error else { return error };
    let part = counter.split('/').nth(1).unwrap_or_default();
    match part {
        "name" => name_taken(kind),
        "trial" => {
            let (is, plural) = if *limit == 1 { ("is", "") } else { ("are", "s") };
            let name = &admitted.trial_name;
            ErrorCode::TooMany.error(format!("only {limit} {name} instance{plural} {is} allowed"))
        }
        "quota" => ErrorCode::QuotaReached.error(format!(
            "{} has reached a maximum number of {limit} allowed {}",
            admitted.holder, kind.file.units
        )),
        _ => no_room(&admitted.instance),
    }
}
