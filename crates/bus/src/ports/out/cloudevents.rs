//! Events as CloudEvents 1.0 messages, in structured or binary mode.

use std::borrow::Cow;

use axum::body::Bytes;
use kernel::log::{CommandState, Event};
use kernel::telemetry::Trace;
use kernel::{Json, Key, Timestamp};
use serde::Serialize;

use crate::model::settings::Mode;
use crate::model::{Destination, Message, Template};

const STRUCTURED: &str = "application/cloudevents+json";
const JSON: &str = "application/json";
const SOURCE: &str = "/mainstay";
/// Room for the attributes of a structured message, so that it is not moved while it is written.
const ENVELOPE_BYTES: usize = 512;

/// Writes events as messages of one sink.
#[derive(Debug, Clone)]
pub struct CloudEvents {
    pub mode: Mode,
    /// The topic or exchange. None: the sink has only one place.
    pub name: Option<Template>,
    pub routing_key: Option<Template>,
    /// The public URL of this server, for data that is too large.
    pub url: String,
    pub bytes_max: usize,
}

/// The whole event. The kernel's own form, with the epoch.
#[derive(Serialize)]
struct Structured<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'static str,
    #[serde(rename = "type")]
    kind: &'a str,
    subject: &'a Key,
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    datacontenttype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataref: Option<&'a str>,
    sequence: i64,
    epoch: i64,
    org: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commandid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commandstate: Option<CommandState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<Trace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Json>,
}

impl CloudEvents {
    /// The message of an event, whose data may be shown in part. What is too large for one message is
    /// left out, and where it can be read is said instead.
    pub fn message(&self, event: &Event, data: &Json, epoch: i64) -> Message {
        let id = event.seq.to_string();
        let too_large = data.text().len() > self.bytes_max;
        let dataref = too_large
            .then(|| format!("{}/api/v1/events?after={}&limit=1", self.url, event.seq - 1));
        let name = |template: &Option<Template>| {
            template.as_ref().map(|template| template.name(event)).unwrap_or_default()
        };
        let trace = event.cause.trace.map(|trace| ("traceparent".into(), trace.to_string()));
        let (content_type, attributes, body) = match self.mode {
            Mode::Structured => {
                let structured = Structured {
                    specversion: "1.0",
                    id: &id,
                    source: SOURCE,
                    kind: &event.kind,
                    subject: &event.subject,
                    time: event.at,
                    datacontenttype: (!too_large).then_some(JSON),
                    dataref: dataref.as_deref(),
                    sequence: event.seq,
                    epoch,
                    org: &event.org,
                    commandid: event.cause.command.as_deref(),
                    commandstate: event.command_state(),
                    traceparent: event.cause.trace,
                    data: (!too_large).then_some(data),
                };
                let data_bytes = if too_large { 0 } else { data.text().len() };
                let mut body = Vec::with_capacity(data_bytes + ENVELOPE_BYTES);
                serde_json::to_writer(&mut body, &structured).expect("our own types serialise");
                (STRUCTURED, trace.into_iter().collect(), Bytes::from(body))
            }
            Mode::Binary => {
                let body = if too_large {
                    Bytes::new()
                } else {
                    Bytes::copy_from_slice(data.text().as_bytes())
                };
                (JSON, attributes(event, &id, epoch, dataref, trace), body)
            }
        };
        Message {
            seq: event.seq,
            to: Destination { name: name(&self.name), routing_key: name(&self.routing_key) },
            key: event.subject.to_string(),
            content_type,
            attributes,
            body,
            after_all: false,
        }
    }
}

type Attribute = (Cow<'static, str>, String);

fn attributes(
    event: &Event,
    id: &str,
    epoch: i64,
    dataref: Option<String>,
    trace: Option<Attribute>,
) -> Vec<Attribute> {
    let state = event.command_state().map(|state| state.label().to_owned());
    let required = [
        ("specversion", "1.0".to_owned()),
        ("id", id.to_owned()),
        ("source", SOURCE.to_owned()),
        ("type", event.kind.clone()),
        ("subject", event.subject.to_string()),
        ("time", event.at.to_string()),
        ("sequence", id.to_owned()),
        ("epoch", epoch.to_string()),
        ("org", event.org.clone()),
    ];
    let optional =
        [("commandid", event.cause.command.clone()), ("commandstate", state), ("dataref", dataref)];
    let required = required.into_iter().filter(|(_, value)| !value.is_empty());
    let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let named = required.chain(optional).map(|(name, value)| (Cow::from(name), value));
    named.chain(trace).collect()
}
