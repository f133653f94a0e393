//! The commands of clusters: what admins do with every cluster, and what an organisation does with
//! its own.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::command::{AnyCommand, AuditFields, CommandContext, Decided};
use kernel::identity::{Action, Principal};
use kernel::{App, Error, Json, Key, Object, Refusal, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::cluster_spec::spec_change;
use crate::Fleet;
use crate::model::cluster::{self, Cluster, Phase, Provider, Spec};
use crate::model::error_code::ErrorCode;
use crate::store::{access, clusters};

kernel::labels! {
    /// What is done to a cluster: the name of the command.
    pub enum Verb {
        Create = "cluster.create",
        Update = "cluster.update",
        Delete = "cluster.delete",
        /// An organisation registers a cluster of its own.
        Register = "cluster.register",
        Deregister = "cluster.deregister",
    }
}

pub struct ClusterCommand {
    pub fleet: Arc<Fleet>,
    pub verb: Verb,
}

/// A data plane to register.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCluster {
    id: String,
    #[serde(default)]
    name: String,
    /// `agent` (an agent will report), `standalone` (a kubeconfig context) or `terraform`.
    #[serde(default)]
    #[schema(value_type = String)]
    provider: Option<Provider>,
    #[serde(default)]
    cloud_provider: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    dns_name: String,
    #[serde(default)]
    external_id: String,
    /// Units that it may hold; none: as many as its agent says.
    limit: Option<i64>,
    #[serde(default)]
    kinds: Vec<String>,
    #[serde(default)]
    instance_types: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterChange {
    /// Whether it takes new instances.
    schedulable: Option<bool>,
    limit: Option<i64>,
    /// Gives its agent a new secret.
    #[serde(default)]
    rotate: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deletion {
    #[serde(default)]
    force: bool,
}

/// A cluster that an organisation registers, as the API of its kind checked it.
#[derive(serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    pub id: String,
    pub spec: Spec,
}

impl ClusterCommand {
    fn create(&self, cx: &CommandContext<'_>, new: NewCluster) -> Result<Decided<Json>> {
        Key::parse(&format!("{}/{}", cluster::KIND, new.id))
            .map_err(|_| Error::invalid("id", "must be letters, digits and '-'"))?;
        check_limit(new.limit)?;
        let cluster = clusters::NewCluster {
            id: &new.id,
            owner: &cx.principal.subject,
            name: if new.name.is_empty() { &new.id } else { &new.name },
            spec: Spec {
                provider: new.provider.unwrap_or(Provider::Agent),
                cloud_provider: new.cloud_provider,
                region: new.region,
                multi_az: true,
                schedulable: true,
                limit: new.limit,
                kinds: new.kinds,
                instance_types: new.instance_types,
                dns_name: new.dns_name,
                external_id: new.external_id,
                ..Spec::default()
            },
            ..Default::default()
        };
        let (object, change) = cluster.register(None, cx.now);
        let audit = AuditFields { after: object.spec.clone(), ..AuditFields::of(&object) };
        Ok(Decided::new(202, Json::encode(&object), audit).change(change))
    }

    async fn update(&self, cx: &CommandContext<'_>, patch: ClusterChange) -> Result<Decided<Json>> {
        check_limit(patch.limit)?;
        self.fleet.index.catch_up().await?;
        let cluster = Cluster::from_object(cx.subject()?)?;
        // Units are counted elsewhere without a limit, so existing ones would not be counted.
        let holds = !self.fleet.index.on_cluster(&cluster.id).is_empty();
        if patch.limit.is_some() && cluster.spec.limit.is_none() && holds {
            let why =
                "can be added only while nothing is on the cluster; lower what its agent offers";
            return Err(Error::invalid("limit", why));
        }
        self.edit(cx, 200, "updated", |spec| {
            spec.schedulable = patch.schedulable.unwrap_or(spec.schedulable);
            spec.limit = patch.limit.or(spec.limit);
            spec.rotation += i64::from(patch.rotate);
            true
        })
    }

    /// A deregistered cluster may be registered again, with another secret.
    async fn register(
        &self,
        cx: &CommandContext<'_>,
        mut new: Registration,
    ) -> Result<Decided<Json>> {
        let taken = {
            let why = format!("cluster id {} is already registered", new.id);
            move || ErrorCode::ClusterTaken.error(why.clone())
        };
        let before = cx.app.store.object(&cluster::key(&new.id)).await?;
        if before.as_ref().is_some_and(|before| before.deleted_at.is_none()) {
            return Err(taken());
        }
        if let Some(before) = &before {
            new.spec.rotation = before.spec.parse::<Spec>()?.rotation + 1;
        }
        // Where clients are kept in another system, the worker registers the agent's client there
        // before anything waits for it; its secret is known already.
        let external = self.fleet.ports.sso_is_external;
        let cluster = clusters::NewCluster {
            id: &new.id,
            org: &cx.principal.org,
            owner: &cx.principal.subject,
            name: &new.id,
            phase: if external { Phase::Accepted } else { Phase::Waiting },
            spec: new.spec,
            ..clusters::NewCluster::default()
        };
        let (object, change) = cluster.register(before.as_deref(), cx.now);
        let audit = AuditFields { after: object.spec.clone(), ..AuditFields::of(&object) };
        let decided = Decided::new(200, Json::encode(&object), audit).change(change);
        Ok(decided.on_refused(move |refusal| match refusal {
            Refusal::Exists(_) => Err(taken()),
            refusal => Err(refusal.into()),
        }))
    }

    async fn check_empty(&self, key: &Key) -> Result<()> {
        self.fleet.index.catch_up().await?;
        let held = self.fleet.index.on_cluster(key.id());
        let Some(first) = held.first() else { return Ok(()) };
        let kind = &first.instance.kind;
        let catalogue = self.fleet.catalogue();
        let plural = catalogue.kind(kind).map_or(kind, |kind| &kind.file.plural);
        let (id, count) = (key.id(), held.len());
        Err(ErrorCode::Forbidden.error(format!(
            "unable to deregister cluster {id}: {count} {plural} are on it; delete every {kind} first"
        )))
    }

    fn edit(
        &self,
        cx: &CommandContext<'_>,
        status: u16,
        event: &'static str,
        edit: impl Fn(&mut Spec) -> bool,
    ) -> Result<Decided<Json>> {
        let before = cx.subject()?;
        let Some((object, change)) = spec_change(before, event, cx.now, edit)? else {
            return Ok(Decided::new(status, Json::encode(before), None));
        };
        let (spec, new) = (before.spec.clone(), object.spec.clone());
        let audit = AuditFields { before: spec, after: new, ..AuditFields::of(before) };
        Ok(Decided::new(status, Json::encode(&object), audit).change(change))
    }

    /// An organisation sees only its own clusters.
    fn check_access(&self, who: &Principal, id: &str, object: Option<&Object>) -> Result<()> {
        let live = object.filter(|object| object.deleted_at.is_none());
        let organisation = matches!(self.verb, Verb::Register | Verb::Deregister);
        match live {
            None if organisation => Err(missing(id, who)),
            None => Err(Error::NotFound(cluster::key(id).to_string())),
            Some(object) if organisation && !is_own(&Cluster::from_object(object)?, who) => {
                let why = "unable to deregister cluster from different organization";
                Err(ErrorCode::Forbidden.error(why))
            }
            Some(_) => Ok(()),
        }
    }
}

#[async_trait]
impl AnyCommand for ClusterCommand {
    fn name(&self) -> &str {
        self.verb.label()
    }

    fn action(&self) -> Action {
        match self.verb {
            Verb::Create | Verb::Update | Verb::Delete => Action::AdminFull,
            Verb::Register | Verb::Deregister => Action::OrgUser,
        }
    }

    async fn subject(&self, app: &App, who: &Principal, key: &Key) -> Result<Option<Arc<Object>>> {
        let object = app.store.object(key).await?;
        self.check_access(who, key.id(), object.as_deref())?;
        Ok(object)
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>> {
        match self.verb {
            Verb::Create => self.create(cx, read(body)?),
            Verb::Update => self.update(cx, read(body)?).await,
            Verb::Delete => {
                let Deletion { force } = read(body)?;
                self.edit(cx, 200, "updated", |spec| {
                    spec.deleting = true;
                    spec.force |= force;
                    spec.schedulable = false;
                    true
                })
            }
            Verb::Register | Verb::Deregister => {
                access::check(&self.fleet.catalogue(), cx.principal)?;
                require_org_admin(cx.principal)?;
                if self.verb == Verb::Register {
                    return self.register(cx, read(body)?).await;
                }
                self.check_empty(&cx.subject()?.key).await?;
                // The worker deletes it.
                self.edit(cx, 202, "deleting", |spec| !std::mem::replace(&mut spec.deleting, true))
            }
        }
    }
}

fn read<T: DeserializeOwned>(body: &Json) -> Result<T> {
    kernel::http::parse_json(body.text().as_bytes())
}

fn check_limit(limit: Option<i64>) -> Result<()> {
    match limit {
        Some(..0) => Err(Error::invalid("limit", "must not be negative")),
        _ => Ok(()),
    }
}

pub fn is_own(cluster: &Cluster, who: &Principal) -> bool {
    cluster.org == who.org && cluster.spec.provider == Provider::Enterprise
}

pub fn missing(id: &str, who: &Principal) -> Error {
    ErrorCode::NotFound.error(format!(
        "enterprise data plane cluster with id='{id}' not found within organization: {}",
        who.org
    ))
}

pub fn require_org_admin(who: &Principal) -> Result<()> {
    let why = "non admin user not authorized to perform this action";
    if who.org_admin { Ok(()) } else { Err(ErrorCode::Unauthorized.error(why)) }
}
