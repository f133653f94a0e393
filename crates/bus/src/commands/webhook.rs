//! Webhooks that users create: each only ever sees its own organisation.

use async_trait::async_trait;
use kernel::change::{CommandReply, Refusal};
use kernel::command::{AnyCommand, AuditFields, Command, CommandContext, Decided, Nothing};
use kernel::http::{parse_json, valid_name};
use kernel::identity::Action;
use kernel::outbound::webhook::secret_text;
use kernel::{App, Change, Draft, Error, Json, Object, Result};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::subject;
use crate::config::{Filter, Mode};
use crate::model::{KIND, Phase, Sink, Spec, Status, Transport, quota_counter};
use crate::store;

/// Creates a webhook. Its reply has the secret, which is derived and stored nowhere.
pub struct Create {
    pub per_organisation_max: u32,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Unique in the organisation.
    name: String,
    /// Where events are posted to.
    url: String,
    /// Which events; all that you may see without it.
    #[serde(default)]
    filter: Filter,
    #[serde(default)]
    mode: Mode,
}

impl Create {
    pub const NAME: &'static str = "sink.create";
}

#[async_trait]
impl AnyCommand for Create {
    fn name(&self) -> &str {
        Create::NAME
    }

    fn action(&self) -> Action {
        Action::OrgMember
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>> {
        let NewWebhook { name, url, filter, mode } = parse_json(body.text().as_bytes())?;
        valid_name("name", &name)?;
        if !filter.orgs.is_empty() {
            let why = "must be left out: a webhook gets the events of your organisation";
            return Err(Error::invalid("filter.orgs", why));
        }
        let url = cx.app.outbound.user_url("url", &url).await?;
        let (org, owner, id) = (&cx.principal.org, &cx.principal.subject, cx.app.ambient.id());
        let limit = i64::from(self.per_organisation_max);
        if limit == 0 {
            return Err(Error::Forbidden("webhooks are switched off here".into()));
        }
        let spec = Spec {
            transport: Transport::Webhook,
            url: Some(url.into()),
            filter,
            mode,
            ..Spec::default()
        };
        let status = Status { since: Some(cx.now), ..Status::default() };
        let draft = Draft::<Spec>::new(store::key(&id), org, owner, &name, cx.now);
        let write = draft.phase(&Phase::Running).spec(&spec).status(&status).create("created");
        let object = write.object.clone();
        let sink = Sink::from_object(&object)?;
        let change = Change {
            takes: vec![
                sink.take(quota_counter(org), 1, limit),
                sink.take(name_counter(org, &name), 1, 1),
            ],
            ..write.into()
        };
        let audit = AuditFields { after: object.spec.clone(), ..AuditFields::of(&object) };
        let quota = quota_counter(org);
        Ok(Decided::new(201, Json::encode(&object), audit).change(change).on_refused(
            move |refusal| match refusal {
                Refusal::Limit { counter, limit, .. } if counter == quota => Err(Error::Conflict(
                    format!("your organisation has {limit} webhooks, and may not have more"),
                )),
                Refusal::Limit { .. } => {
                    Err(Error::Conflict(format!("name: there is a webhook `{name}` already")))
                }
                other => Err(other.into()),
            },
        ))
    }

    fn complete(&self, app: &App, reply: CommandReply) -> Result<CommandReply> {
        if reply.status >= 400 {
            return Ok(reply);
        }
        let mut body: Value = reply.body.parse()?;
        let object: Object = reply.body.parse()?;
        body["secret"] = secret_text(&app.blobs.derive(&secret_purpose(object.key.id())))
            .expose()
            .as_str()
            .into();
        Ok(CommandReply { body: Json::encode(&body), ..reply })
    }
}

/// What the secret of a webhook is derived for.
pub fn secret_purpose(id: &str) -> String {
    format!("webhook {id}")
}

fn name_counter(org: &str, name: &str) -> String {
    format!("name/{KIND}/{org}/{name}")
}

/// Deletes a webhook, or a sink that is no longer configured.
pub struct Delete;

#[async_trait]
impl Command for Delete {
    const NAME: &'static str = "sink.delete";
    const ACTION: Action = Action::Write;
    type Body = Nothing;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Object>> {
        let (object, sink) = subject(cx)?;
        if object.org.is_empty() && sink.phase != Phase::Off {
            let why = format!("{} is in the configuration; take it out there first", sink.id);
            return Err(Error::Conflict(why));
        }
        let write = Draft::<Spec>::of(&object).phase(&Phase::Deleted).delete("deleted", cx.now);
        let gone = write.object.clone();
        let counters = [quota_counter(&sink.org), name_counter(&sink.org, &sink.name)];
        let change = Change { releases: sink.releases(counters), ..write.into() };
        let audit = AuditFields { before: object.spec.clone(), ..AuditFields::of(&object) };
        Ok(Decided::new(200, gone, audit).change(change))
    }
}
