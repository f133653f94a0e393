//! The promotion of an instance from one billing model to another.

use kernel::change::Take;
use kernel::{Result, Timestamp};

use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Phase, Promotion};
use crate::model::kind::Kind;
use crate::model::quota::QuotaList;
use crate::model::settings::{QuotaSettings, QuotaType};

/// Whether an instance may be promoted.
pub fn check(kind: &Kind, instance: &Instance, promotion: &Promotion) -> Result<()> {
    let (spec, id) = (&instance.spec, &instance.id);
    let name = kind.name();
    let billing = kind.billing(&spec.instance_type, &spec.billing_model);
    let targets = billing.map(|billing| billing.promotes_to.as_slice()).unwrap_or_default();
    if targets.is_empty() {
        return Err(ErrorCode::Validation.error(format!(
            "{name} request \"{id}\" has a {name} billing model \"{}\". Only {name} requests with a \
             {name} billing model 'eval' can be promoted",
            spec.billing_model
        )));
    }
    if spec.promotion.as_ref().is_some_and(|p| p.failed.is_empty()) {
        return Err(
            ErrorCode::Conflict.error(format!("{name} request \"{id}\" is being promoted already"))
        );
    }
    let from = [Phase::Ready, Phase::Suspended, Phase::Resuming];
    if !from.contains(&instance.phase) {
        return Err(ErrorCode::Validation.error(format!(
            "{name} request \"{id}\" with status \"{}\" cannot be promoted: promotable status are: \
             [ready suspended resuming]",
            instance.phase.label()
        )));
    }
    if !targets.contains(&promotion.to) {
        return Err(ErrorCode::Billing.error(format!(
            "{name} request \"{id}\" cannot be promoted to \"{}\", only to: [{}]",
            promotion.to,
            targets.join(" ")
        )));
    }
    let needs_account = kind.billing(&spec.instance_type, &promotion.to).is_some_and(|b| b.account);
    if needs_account
        && !promotion.marketplace.is_empty()
        && promotion.billing_cloud_account_id.is_empty()
    {
        return Err(ErrorCode::Billing
            .error("desired_billing_cloud_account_id is needed for a marketplace"));
    }
    Ok(())
}

/// The promoted instance, and what it takes of the new quota.
pub fn promoted(
    instance: &Instance,
    promotion: &Promotion,
    (settings, list, kind): (&QuotaSettings, &QuotaList, &Kind),
    now: Timestamp,
) -> (Instance, Option<Take>) {
    let mut next = instance.clone();
    next.spec.promotion = None;
    next.spec.billing_model = promotion.to.clone();
    next.spec.marketplace = promotion.marketplace.clone();
    next.spec.billing_cloud_account_id = promotion.billing_cloud_account_id.clone();
    let max = settings.max_allowed_instances;
    let entitlement = list.entitlement(&instance.org, &instance.owner, max);
    let take = entitlement.map(|entitlement| {
        let instance_type = &instance.spec.instance_type;
        let limit = if settings.enforced && settings.quota_type == QuotaType::List {
            entitlement.limit(kind, instance_type, &promotion.to, now)
        } else {
            i64::MAX
        };
        let counter = entitlement.holder.counter(kind.name(), instance_type, &promotion.to);
        instance.take(counter, instance.spec.units, limit)
    });
    if let Some(take) = &take {
        next.spec.quota_counter = take.counter.clone();
    }
    (next, take)
}
