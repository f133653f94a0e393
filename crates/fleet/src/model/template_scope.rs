//! The values that a kind's templates can name.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::model::instance::{Instance, Phase};
use crate::model::kind::{KindFile, Size};
use crate::model::sso::{Endpoints, canary_client_id};
use crate::model::template::{Path, Scope, Val};

/// The scope of an instance's templates.
pub struct InstanceScope<'a> {
    pub kind: &'a KindFile,
    pub instance: &'a Instance,
    pub browser_url: &'a str,
    /// Only for agents.
    pub secrets: Option<&'a AgentSecrets>,
}

/// Values that only the agent of its cluster gets.
pub struct AgentSecrets {
    pub sso: Endpoints,
    pub canary_secret: String,
    pub tls_cert: String,
    pub tls_key: String,
}

/// How long a client's session may last before it must authenticate again.
const SESSION_MS: i64 = 299_000;

impl InstanceScope<'_> {
    fn size(&self) -> Option<&Size> {
        self.kind.size(&self.instance.spec.instance_type, &self.instance.spec.size_id)
    }

    /// Where clients connect; empty until it is known.
    fn endpoint(&self) -> Val<'_> {
        let status = &self.instance.status;
        if !status.address.is_empty() {
            return Val::text(&status.address);
        }
        match self.kind.dns.as_ref().and_then(|dns| dns.port) {
            Some(port) if !status.host.is_empty() => Val::owned(format!("{}:{port}", status.host)),
            _ => Val::text(&status.host),
        }
    }

    /// The value of a name without a dot; none if no template may use it.
    pub fn top_level(&self, name: &str) -> Option<Val<'_>> {
        let Instance { spec, status, .. } = self.instance;
        let instance = self.instance;
        Some(match name {
            "id" => Val::text(&instance.id),
            "title" => Val::text(&self.kind.title),
            "href" => Val::owned(self.kind.href(&instance.id)),
            "status" => Val::text(instance.phase.label()),
            "name" => Val::text(&instance.name),
            "owner" => Val::text(&instance.owner),
            "org" => Val::text(&instance.org),
            "account" => Val::text(&spec.account),
            // Known to the account service alone.
            "account_number" => Val::Nothing,
            "cloud_provider" => Val::text(&spec.cloud_provider),
            "region" => Val::text(&spec.region),
            "multi_az" => Val::Bool(spec.multi_az),
            "instance_type" => Val::text(&spec.instance_type),
            "instance_type_name" => {
                let instance_type = self.kind.instance_type(&spec.instance_type);
                instance_type.map_or(Val::Nothing, |ty| Val::text(&ty.name))
            }
            "size_id" => Val::text(&spec.size_id),
            "units" => Val::Int(spec.units),
            "billing_model" => Val::text(&spec.billing_model),
            "marketplace" => Val::text(&spec.marketplace),
            "billing_cloud_account_id" => Val::text(&spec.billing_cloud_account_id),
            "promotion_status" => match &spec.promotion {
                None => Val::Nothing,
                Some(promotion) if promotion.failed.is_empty() => Val::text("promoting"),
                Some(_) => Val::text("failed"),
            },
            "promotion_details" => {
                spec.promotion.as_ref().map_or(Val::Nothing, |p| Val::text(&p.failed))
            }
            "cluster_id" => Val::text(&status.cluster_id),
            "own_cluster_id" => Val::text(&spec.own_cluster_id),
            "host" => Val::text(&status.host),
            "endpoint" => self.endpoint(),
            "namespace" => Val::text(&status.namespace),
            "placement_id" => Val::text(&status.placement_id),
            "routes" => {
                let routes = status.routes.as_deref().unwrap_or_default().iter();
                let routes = routes.map(|r| json!({"domain": r.domain, "router": r.router}));
                Val::Json(Cow::Owned(Value::Array(routes.collect())))
            }
            "routes_created" => Val::Bool(status.routes_created),
            "created_at" => Val::Time(instance.created_at),
            "updated_at" => Val::Time(instance.updated_at),
            "expires_at" => spec.expires_at.map_or(Val::Nothing, Val::Time),
            "failed_reason" => Val::text(&status.failed_reason),
            "deleted" => Val::Bool(instance.phase.is_going()),
            "suspended" => {
                Val::Bool(matches!(instance.phase, Phase::Suspending | Phase::Suspended))
            }
            "subscription_id" => Val::text(&spec.subscription_id),
            "quota_type" => Val::text(&spec.quota_type),
            "browser_url" => {
                Val::owned(format!("{}/{}/details/dashboard", self.browser_url, instance.id))
            }
            "session_lifetime_ms" => {
                let on = spec.fields.get("reauthentication_enabled").and_then(Value::as_bool);
                Val::Int(if on == Some(true) { SESSION_MS } else { 0 })
            }
            _ => return None,
        })
    }

    fn secret(&self, root: &str, leaf: &str) -> Val<'_> {
        let Some(secrets) = self.secrets else { return Val::Nothing };
        let canary = self.kind.sso.canary;
        match (root, leaf) {
            ("sso", "token_url") => Val::text(&secrets.sso.token_url),
            ("sso", "jwks") => Val::text(&secrets.sso.jwks),
            ("sso", "issuer") => Val::text(&secrets.sso.issuer),
            ("sso", "base_url") => Val::text(&secrets.sso.base_url),
            ("canary", "name") if canary => Val::text("canary"),
            ("canary", "id") if canary => Val::owned(canary_client_id(&self.instance.id)),
            ("canary", "secret") if canary => Val::text(&secrets.canary_secret),
            ("tls", "cert") => Val::text(&secrets.tls_cert),
            ("tls", "key") => Val::text(&secrets.tls_key),
            _ => Val::Nothing,
        }
    }
}

impl Scope for InstanceScope<'_> {
    fn get(&self, path: &Path) -> Val<'_> {
        let Path { root, leaf } = path;
        let Instance { spec, status, .. } = self.instance;
        let text =
            |value: Option<&'_ String>| value.map_or(Val::Nothing, |v| Val::owned(v.clone()));
        match root.as_str() {
            name if leaf.is_empty() => self.top_level(name).unwrap_or(Val::Nothing),
            "size" => {
                let raised = spec.raised.get(leaf);
                let value = raised.or_else(|| self.size()?.values.get(leaf));
                value.map_or(Val::Nothing, Val::json)
            }
            "field" => {
                let default = || self.kind.fields.get(leaf).map(|field| &field.default);
                spec.fields.get(leaf).or_else(default).map_or(Val::Nothing, Val::json)
            }
            "versions" => text(status.versions.get(leaf)),
            // Until it is prepared they may change with the cluster.
            "desired" if self.instance.phase == Phase::Accepted => Val::Nothing,
            "desired" => text(spec.versions.get(leaf)),
            "upgrading" => Val::Bool(status.upgrading.contains(leaf)),
            "agent" => text(status.agent.get(leaf)),
            _ => self.secret(root, leaf),
        }
    }
}

/// The scope of the template `size`.
pub struct SizeScope<'a> {
    pub multi_az: bool,
    pub size: &'a Size,
}

impl Scope for SizeScope<'_> {
    fn get(&self, path: &Path) -> Val<'_> {
        let size = self.size;
        match path.root.as_str() {
            "size" => size.values.get(&path.leaf).map_or(Val::Nothing, Val::json),
            "size_id" => Val::text(&size.id),
            "size_name" => Val::text(&size.name),
            "units" => Val::Int(size.units),
            "az_mode" => Val::text(if self.multi_az { "multi" } else { "single" }),
            "lifespan_s" => size.lifespan_s.map_or(Val::Nothing, Val::Int),
            "quota_kind" => Val::text(&size.quota_type),
            "maturity" => Val::text(&size.maturity),
            _ => Val::Nothing,
        }
    }
}
