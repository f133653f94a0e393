//! Creates, replaces and deletes profiles and layers. Those of an organisation are its own; one with
//! the name of a built-in profile takes its place there.

use std::collections::BTreeSet;

use async_trait::async_trait;
use kernel::change::Refusal;
use kernel::command::{AnyCommand, AuditFields, CommandContext, Decided};
use kernel::http::parse_json;
use kernel::identity::Action;
use kernel::typed::Typed;
use kernel::{Change, Class, Draft, Error, Json, Key, Object, Result};
use serde_json::Value;

use super::datasource::Named;
use crate::model::declared::{Declared, Sort};
use crate::model::filter::Filter;
use crate::model::tenant::{Phase, Tenant};
use crate::ports::prometheus::discover;
use crate::ports::prometheus::profile::{Profile, ProfileError};
use crate::ports::prometheus::queries::Queries;

/// Of one sort and tenant.
const DECLARED_MAX: i64 = 200;

/// What is done with a profile or layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Create,
    /// One that exists.
    Update,
    Delete,
}

/// A command such as `metric-profile.create`. Its body is the document, or the name to delete.
pub struct Declare {
    sort: Sort,
    verb: Verb,
    name: String,
}

impl Declare {
    /// The commands of all sorts.
    pub fn all() -> impl Iterator<Item = Declare> {
        let verbs = [Verb::Create, Verb::Update, Verb::Delete];
        Sort::ALL.into_iter().flat_map(move |sort| verbs.map(|verb| Declare::new(sort, verb)))
    }

    fn new(sort: Sort, verb: Verb) -> Declare {
        Declare { sort, verb, name: Declare::name_of(sort, verb) }
    }

    pub fn name_of(sort: Sort, verb: Verb) -> String {
        let verb = match verb {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Delete => "delete",
        };
        format!("{}.{verb}", sort.label())
    }

    /// The object of this name, deleted or not.
    async fn before(&self, cx: &CommandContext<'_>, name: &str) -> Result<(Key, Option<Object>)> {
        let key = Tenant::of(cx.principal).key(self.sort.label(), name);
        let found = cx.app.store.object(&key).await?;
        Ok((key, found.map(|object| (*object).clone())))
    }

    fn write(
        &self,
        cx: &CommandContext<'_>,
        declared: &Declared,
        key: Key,
        before: Option<&Object>,
    ) -> Result<Decided<Json>> {
        let tenant = Tenant::of(cx.principal);
        let existing = before.filter(|object| object.deleted_at.is_none());
        let draft = match before {
            Some(object) => Draft::of(object),
            None => Draft::new(key, tenant.org, tenant.owner, &declared.name, cx.now),
        };
        let draft = draft.owner(existing.map_or(tenant.owner, |object| &object.owner));
        let draft = draft.phase(&Phase::Ready).spec(declared);
        let event = if existing.is_some() { "updated" } else { "created" };
        let write = draft.respec(event, cx.now);
        let counter = tenant.counter(self.sort.label());
        let typed = Typed::<Declared>::from_object(&write.object)?;
        let takes = match existing {
            Some(_) => Vec::new(),
            None => vec![typed.take(counter, 1, DECLARED_MAX)],
        };
        let audit = AuditFields {
            before: existing.map(|object| object.spec.clone()).unwrap_or_default(),
            after: write.object.spec.clone(),
            ..AuditFields::of(&write.object)
        };
        let reply = Json::encode(&write.object);
        let plural = self.sort.plural();
        let decided = Decided::new(201, reply, audit);
        Ok(decided.change(Change { takes, ..Change::from(write) }).on_refused(move |refusal| {
            match refusal {
                // Created at the same time.
                Refusal::Exists(_) => Ok(()),
                Refusal::Limit { limit, .. } => Err(Error::Conflict(format!(
                    "there are {limit} {plural}, and there may not be more"
                ))),
                other => Err(other.into()),
            }
        }))
    }

    async fn delete(&self, cx: &CommandContext<'_>, name: &str) -> Result<Decided<Json>> {
        let (_, found) = self.before(cx, name).await?;
        let found = found.filter(|object| object.deleted_at.is_none());
        let object = found.ok_or_else(|| unknown(self.sort, name))?;
        let typed = Typed::<Declared>::from_object(&object)?;
        let write = Draft::<Declared>::of(&object).delete("deleted", cx.now);
        let reply = Json::encode(&write.object);
        let releases = typed.releases([Tenant::of(cx.principal).counter(self.sort.label())]);
        let audit = AuditFields { before: object.spec.clone(), ..AuditFields::of(&object) };
        let change = Change { releases, ..Change::from(write) };
        Ok(Decided::new(201, reply, audit).change(change))
    }
}

#[async_trait]
impl AnyCommand for Declare {
    fn name(&self) -> &str {
        &self.name
    }

    fn action(&self) -> Action {
        Action::Write
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>> {
        let body = body.text().as_bytes();
        if self.verb == Verb::Delete {
            let Named { name } = parse_json(body)?;
            return self.delete(cx, &name).await;
        }
        let declared = self.sort.read(parse_json::<Value>(body)?)?;
        check(self.sort, &declared.document)?;
        let (key, before) = self.before(cx, &declared.name).await?;
        let existing = before.as_ref().filter(|object| object.deleted_at.is_none());
        match (self.verb, existing) {
            (Verb::Create, Some(_)) => Err(taken(self.sort, &declared.name)),
            (Verb::Update, None) => Err(missing(self.sort, &declared.name)),
            (Verb::Update, Some(existing)) => {
                not_older(self.sort, &existing.spec.parse()?, &declared)?;
                self.write(cx, &declared, key, before.as_ref())
            }
            _ => self.write(cx, &declared, key, before.as_ref()),
        }
    }
}

/// Whether its expressions can be asked of many containers at once. Those of performance profiles are
/// not asked: results are uploaded.
fn check(sort: Sort, document: &Value) -> Result<()> {
    match sort {
        Sort::Metric => {
            let profile = Profile::of(document);
            let checked = profile.and_then(|profile| Queries::check(&profile));
            checked.map_err(|error| cannot_be_used("slo.function_variables", &error))
        }
        Sort::Metadata => {
            let matchers = Filter::default().matchers(&BTreeSet::new());
            let profile = Profile::of(document);
            let checked = profile.and_then(|profile| discover::queries(&profile, &matchers, 15));
            checked.map(drop).map_err(|error| cannot_be_used("query_variables", &error))
        }
        Sort::Performance | Sort::Layer => Ok(()),
    }
}

/// The error that names the field of an expression that cannot be used.
fn cannot_be_used(variables: &str, error: &ProfileError) -> Error {
    let field = match error {
        ProfileError::NotValid(_) => variables.to_owned(),
        ProfileError::Missing { variable, function }
        | ProfileError::NotBatched { variable, function, .. } => {
            format!("{variables}.{variable}.{function}")
        }
        ProfileError::NoPlace { variable, .. } => format!("{variables}.{variable}.sum"),
    };
    Error::invalid(field, error.to_string())
}

/// The existing service says so with a 400.
pub fn unknown(sort: Sort, name: &str) -> Error {
    let words = sort.words();
    let why = format!("Given {words} name - {name} either does not exist or is not valid");
    Error::coded(400, Class::Invalid, why)
}

fn missing(sort: Sort, name: &str) -> Error {
    if sort != Sort::Performance {
        return unknown(sort, name);
    }
    let why = format!(
        "Validation failed: Performance Profile '{name}' not found. Use POST to create a new profile."
    );
    Error::coded(404, Class::NotFound, why)
}

fn taken(sort: Sort, name: &str) -> Error {
    Error::Conflict(match sort {
        Sort::Layer => format!("Layer already exists with name: {name}"),
        _ => format!("Validation failed: {} already exists: {name}", title(sort)),
    })
}

/// As messages of the existing service begin: `Metric Profile`.
pub fn title(sort: Sort) -> &'static str {
    match sort {
        Sort::Metric => "Metric Profile",
        Sort::Metadata => "Metadata Profile",
        Sort::Performance => "Performance Profile",
        Sort::Layer => "Layer",
    }
}

/// A performance profile is not replaced by an older version.
fn not_older(sort: Sort, before: &Declared, after: &Declared) -> Result<()> {
    let version = |declared: &Declared| declared.document["profile_version"].as_f64();
    let (Some(old), Some(new)) = (version(before), version(after)) else { return Ok(()) };
    if sort != Sort::Performance || new >= old {
        return Ok(());
    }
    Err(Error::Conflict(format!(
        "Validation failed: Update rejected: the provided version ({new:.1}) is older than the \
         current version ({old:.1}) for profile '{}'.",
        after.name
    )))
}
