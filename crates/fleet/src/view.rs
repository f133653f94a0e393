//! An instance as its kind's templates see it.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::model::instance::{Instance, Status};
use crate::model::kind::{Kind, Size};
use crate::model::template::{Path, Scope, Val};
use crate::ports::sso::Endpoints;

/// What an instance's templates can name beside the instance.
pub struct View<'a> {
    pub kind: &'a Kind,
    pub instance: &'a Instance,
    pub browser_url: &'a str,
    /// Only for agents.
    pub secrets: Option<&'a ForAgent>,
}

/// What only the agent of its cluster is told.
pub struct ForAgent {
    pub sso: Endpoints,
    pub canary_secret: String,
    pub tls_cert: String,
    pub tls_key: String,
}

/// How long a client may go on before it has to show its token again.
const SESSION_MS: i64 = 299_000;

pub fn canary_id(instance: &str) -> String {
    format!("canary-{instance}")
}

impl View<'_> {
    fn size(&self) -> Option<&Size> {
        self.kind.size(&self.instance.spec.instance_type, &self.instance.spec.size_id)
    }

    /// Where clients connect: nothing until there is something to connect to.
    fn endpoint(&self) -> Val<'_> {
        let seen = &self.instance.seen;
        if !seen.address.is_empty() {
            return Val::text(&seen.address);
        }
        match self.kind.file.dns.as_ref().and_then(|dns| dns.port) {
            Some(port) if !seen.host.is_empty() => Val::owned(format!("{}:{port}", seen.host)),
            _ => Val::text(&seen.host),
        }
    }

    fn plain(&self, name: &str) -> Val<'_> {
        let Instance { spec, seen, .. } = self.instance;
        let instance = self.instance;
        match name {
            "id" => Val::text(&instance.id),
            "title" => Val::text(&self.kind.file.title),
            "href" => Val::owned(self.kind.href(&instance.id)),
            "status" => Val::text(instance.status.label()),
            "name" => Val::text(&instance.name),
            "owner" => Val::text(&instance.owner),
            "org" => Val::text(&instance.org),
            "account" => Val::text(&spec.account),
            "cloud_provider" => Val::text(&spec.cloud_provider),
            "region" => Val::text(&spec.region),
            "multi_az" => Val::Bool(spec.multi_az),
            "instance_type" => Val::text(&spec.instance_type),
            "instance_type_name" => self
                .kind
                .of_type(&spec.instance_type)
                .map_or(Val::Nothing, |of| Val::text(&of.name)),
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
            "cluster_id" => Val::text(&seen.cluster_id),
            "own_cluster_id" => Val::text(&spec.own_cluster_id),
            "host" => Val::text(&seen.host),
            "endpoint" => self.endpoint(),
            "namespace" => Val::text(&seen.namespace),
            "placement_id" => Val::text(&seen.placement_id),
            "routes" => {
                let routes = seen.routes.as_deref().unwrap_or_default().iter();
                let routes = routes.map(|r| json!({"domain": r.domain, "router": r.router}));
                Val::Json(Cow::Owned(Value::Array(routes.collect())))
            }
            "routes_created" => Val::Bool(seen.routes_created),
            "created_at" => Val::Time(instance.created_at),
            "updated_at" => Val::Time(instance.updated_at),
            "expires_at" => spec.expires_at.map_or(Val::Nothing, Val::Time),
            "failed_reason" => Val::text(&seen.failed_reason),
            "deleted" => Val::Bool(instance.status.is_going()),
            "suspended" => {
                Val::Bool(matches!(instance.status, Status::Suspending | Status::Suspended))
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
            _ => Val::Nothing,
        }
    }
}

impl Scope for View<'_> {
    fn get(&self, path: &Path) -> Val<'_> {
        let Path { root, leaf } = path;
        let Instance { spec, seen, .. } = self.instance;
        let of = |value: Option<&'_ String>| value.map_or(Val::Nothing, |v| Val::owned(v.clone()));
        match root.as_str() {
            plain if leaf.is_empty() => self.plain(plain),
            "size" => {
                let raised = spec.raised.get(leaf);
                let value = raised.or_else(|| self.size()?.values.get(leaf));
                value.map_or(Val::Nothing, Val::json)
            }
            "field" => {
                let default = || self.kind.file.fields.get(leaf).map(|field| &field.default);
                spec.fields.get(leaf).or_else(default).map_or(Val::Nothing, Val::json)
            }
            "versions" => of(seen.versions.get(leaf)),
            // Until it is prepared they may change with the cluster.
            "desired" if self.instance.status == Status::Accepted => Val::Nothing,
            "desired" => of(spec.versions.get(leaf)),
            "upgrading" => Val::Bool(seen.upgrading.contains(leaf)),
            "agent" => of(seen.agent.get(leaf)),
            _ => self.secret(root, leaf),
        }
    }
}

impl View<'_> {
    fn secret(&self, root: &str, leaf: &str) -> Val<'_> {
        let Some(given) = self.secrets else { return Val::Nothing };
        let canary = self.kind.file.sso.canary;
        match (root, leaf) {
            ("sso", "token_url") => Val::text(&given.sso.token_url),
            ("sso", "jwks") => Val::text(&given.sso.jwks),
            ("sso", "issuer") => Val::text(&given.sso.issuer),
            ("sso", "base_url") => Val::text(&given.sso.base_url),
            ("canary", "name") if canary => Val::text("canary"),
            ("canary", "id") if canary => Val::owned(canary_id(&self.instance.id)),
            ("canary", "secret") if canary => Val::text(&given.canary_secret),
            ("tls", "cert") => Val::text(&given.tls_cert),
            ("tls", "key") => Val::text(&given.tls_key),
            _ => Val::Nothing,
        }
    }
}

/// A size, as the template `size` sees it.
pub struct SizeView<'a> {
    pub multi_az: bool,
    pub size: &'a Size,
}

impl Scope for SizeView<'_> {
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
