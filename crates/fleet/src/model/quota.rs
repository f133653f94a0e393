//! The quota list, and the entitlement of one caller.

use std::collections::BTreeSet;

use kernel::Timestamp;
use serde::{Deserialize, Serialize};

use super::kind::{InstanceType, Kind};

/// An organisation's quota of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub allowed: i64,
    pub consumed: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaList {
    pub registered_service_accounts: Vec<Account>,
    pub registered_users_per_organisation: Vec<Organisation>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    pub username: String,
    pub max_allowed_instances: Option<i64>,
    #[serde(default)]
    pub granted_quota: Vec<Grant>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Organisation {
    /// Numbers are common, and need no quotes.
    #[serde(deserialize_with = "text_or_number")]
    pub id: String,
    #[serde(default)]
    pub any_user: bool,
    pub max_allowed_instances: Option<i64>,
    #[serde(default)]
    pub registered_users: Vec<User>,
    #[serde(default)]
    pub granted_quota: Vec<Grant>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    pub username: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub instance_type_id: String,
    #[serde(default, alias = "kafka_billing_models")]
    pub billing_models: Vec<BillingGrant>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BillingGrant {
    pub id: String,
    pub max_allowed_instances: Option<i64>,
    /// `YYYY-MM-DD ±hh:mm`: the last day.
    pub expiration_date: Option<String>,
}

pub fn text_or_number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(i64),
    }
    Ok(match Either::deserialize(from)? {
        Either::Text(text) => text,
        Either::Number(number) => number.to_string(),
    })
}

/// The owner of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Organisation(String),
    User(String),
}

impl Holder {
    pub fn counter(&self, kind: &str, ty: &str, billing: &str) -> String {
        match self {
            Holder::Organisation(org) => format!("fleet/quota/{kind}/org/{org}/{ty}/{billing}"),
            Holder::User(user) => format!("fleet/quota/{kind}/user/{user}/{ty}/{billing}"),
        }
    }

    /// For messages.
    pub fn describe(&self) -> String {
        match self {
            Holder::Organisation(org) => format!("organization '{org}'"),
            Holder::User(user) => format!("user '{user}'"),
        }
    }
}

/// A caller's entitlement: whose quota it is, and how much of each type.
#[derive(Debug, Clone)]
pub struct Entitlement<'a> {
    pub holder: Holder,
    max_each: i64,
    grants: &'a [Grant],
}

/// The billing model of entries without grants.
const DEFAULT_BILLING: &str = "standard";

impl QuotaList {
    /// The entitlement of a user; an organisation's entry comes before a user's. None: only trials.
    pub fn entitlement(&self, org: &str, user: &str, max_default: i64) -> Option<Entitlement<'_>> {
        let organisation = self.registered_users_per_organisation.iter().find(|entry| {
            entry.id == org
                && (entry.any_user || entry.registered_users.iter().any(|u| u.username == user))
        });
        if let Some(entry) = organisation {
            return Some(Entitlement {
                holder: Holder::Organisation(org.into()),
                max_each: entry.max_allowed_instances.unwrap_or(max_default),
                grants: &entry.granted_quota,
            });
        }
        let account = self.registered_service_accounts.iter().find(|a| a.username == user)?;
        Some(Entitlement {
            holder: Holder::User(user.into()),
            max_each: account.max_allowed_instances.unwrap_or(max_default),
            grants: &account.granted_quota,
        })
    }

    /// When the quota of an instance ends; none if no end is recorded. An entry that was removed from
    /// the list does not end it.
    pub fn ends(&self, instance: &super::instance::Instance) -> Option<Timestamp> {
        let entitlement = self.entitlement(&instance.org, &instance.owner, 0)?;
        let grant = |g: &&Grant| g.instance_type_id == instance.spec.instance_type;
        let grant = entitlement.grants.iter().find(grant)?;
        let model = |m: &&BillingGrant| m.id == instance.spec.billing_model;
        day_end(grant.billing_models.iter().find(model)?.expiration_date.as_deref()?)
    }

    pub fn check(&self) -> Result<(), (String, String)> {
        let organisations = self.registered_users_per_organisation.iter().enumerate();
        let accounts = self.registered_service_accounts.iter().enumerate();
        let all = organisations
            .map(|(i, o)| (format!("registered_users_per_organisation[{i}]"), &o.granted_quota))
            .chain(
                accounts
                    .map(|(i, a)| (format!("registered_service_accounts[{i}]"), &a.granted_quota)),
            );
        for (place, grants) in all {
            for (g, grant) in grants.iter().enumerate() {
                for (m, model) in grant.billing_models.iter().enumerate() {
                    if model.expiration_date.as_deref().is_some_and(|d| day_end(d).is_none()) {
                        return Err((
                            format!(
                                "{place}.granted_quota[{g}].billing_models[{m}].expiration_date"
                            ),
                            "must be like 2027-01-31 +00:00".into(),
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Entitlement<'_> {
    /// Units of this type and billing model; 0: none, or it ended.
    pub fn limit(&self, kind: &Kind, ty: &str, billing: &str, now: Timestamp) -> i64 {
        if self.grants.is_empty() {
            let first = kind.file.types.iter().find(|t| !t.trial).map(|t| t.id.as_str());
            let is_default = first == Some(ty) && billing == DEFAULT_BILLING;
            return if is_default { self.max_each } else { 0 };
        }
        let Some(grant) = self.grants.iter().find(|grant| grant.instance_type_id == ty) else {
            return 0;
        };
        if grant.billing_models.is_empty() {
            return if billing == DEFAULT_BILLING { self.max_each } else { 0 };
        }
        match grant.billing_models.iter().find(|model| model.id == billing) {
            Some(model) if !model.ended(now) => {
                model.max_allowed_instances.unwrap_or(self.max_each)
            }
            _ => 0,
        }
    }

    /// The first type with a limit above zero that is not a trial.
    pub fn first_type<'k>(&self, kind: &'k Kind, now: Timestamp) -> Option<&'k InstanceType> {
        let mut billings = kind.billings().filter(|(ty, _)| !ty.trial);
        let found = billings.find(|(ty, b)| self.limit(kind, &ty.id, &b.id, now) > 0);
        found.map(|(ty, _)| ty)
    }
}

impl BillingGrant {
    fn ended(&self, now: Timestamp) -> bool {
        self.expiration_date.as_deref().and_then(day_end).is_some_and(|end| now >= end)
    }
}

/// The end of the day.
fn day_end(text: &str) -> Option<Timestamp> {
    let (day, offset) = text.split_once(' ').unwrap_or((text, "+00:00"));
    let at: jiff::Timestamp = format!("{day}T00:00:00{offset}").parse().ok()?;
    Some(Timestamp(at.as_millisecond() + 24 * 3_600_000))
}

/// Denied users, and the only organisations that are allowed.
#[derive(Debug, Clone, Default)]
pub struct AccessRules {
    pub denied: BTreeSet<String>,
    /// None: everyone.
    pub allowed: Option<BTreeSet<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "
registered_service_accounts:
  - username: robot
    max_allowed_instances: 3
registered_users_per_organisation:
  - id: 13640203
    any_user: true
    max_allowed_instances: 5
    granted_quota:
      - instance_type_id: standard
        kafka_billing_models:
          - { id: standard, expiration_date: 2026-01-31 +02:00 }
          - { id: eval, max_allowed_instances: 2 }
  - id: '7'
    registered_users: [{ username: alice }]
";

    fn kafka() -> Kind {
        Kind::read("kafka.yaml", include_str!("../../../../kinds/kafka.yaml")).unwrap()
    }

    #[test]
    fn an_organisations_entry_comes_before_a_users() {
        let list: QuotaList = serde_yaml_ng::from_str(LIST).unwrap();
        list.check().unwrap();
        let kind = kafka();
        let (before, after) = (Timestamp(0), Timestamp(i64::MAX / 2));
        let org = list.entitlement("13640203", "robot", 1).unwrap();
        assert_eq!(org.holder, Holder::Organisation("13640203".into()));
        assert_eq!(org.limit(&kind, "standard", "standard", before), 5);
        assert_eq!(org.limit(&kind, "standard", "standard", after), 0, "it ended");
        assert_eq!(org.limit(&kind, "standard", "eval", after), 2);
        assert_eq!(org.limit(&kind, "standard", "marketplace", before), 0);
        assert_eq!(org.first_type(&kind, before).unwrap().id, "standard");
        let user = list.entitlement("", "robot", 1).unwrap();
        assert_eq!(user.limit(&kind, "standard", "standard", before), 3);
        assert!(list.entitlement("7", "bob", 1).is_none());
        assert_eq!(
            list.entitlement("7", "alice", 1).unwrap().limit(&kind, "standard", "standard", before),
            1
        );
    }

    #[test]
    fn a_quota_ends_with_its_last_day_in_its_own_time_zone() {
        let end = day_end("2026-01-31 +02:00").unwrap();
        assert_eq!(end.to_string(), "2026-01-31T22:00:00.000Z");
        assert_eq!(day_end("31.1.2026"), None);
    }
}
