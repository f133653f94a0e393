//! A sink as an object: what it is, what people asked of it, and how it is.

use kernel::typed::Kind;
use kernel::{Timestamp, Typed, labels};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::settings::{Filter, Mode};

pub const KIND: &str = "sink";

/// The desired state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    pub transport: Transport,
    /// Of a user's webhook. Other sinks have theirs in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where a sink of the configuration sends to, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    pub filter: Filter,
    pub mode: Mode,
    /// Counts replays: each begins a new epoch.
    pub epoch: i64,
    /// The event with which the epoch begins.
    pub from: Option<i64>,
    /// Counts requests to resume.
    pub resumes: i64,
    /// The last of them discards the parked events instead of sending them again.
    pub discard: bool,
}

/// What carries the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    Kafka,
    #[default]
    RabbitMq,
    Webhook,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// When the phase began.
    pub since: Option<Timestamp>,
    /// Why it is failing or parked.
    pub reason: String,
}

labels! {
    pub enum Phase {
        Running = "running",
        /// What it sends to cannot be reached, or refuses: it is tried again.
        Failing = "failing",
        /// It waits for a person: `mainstay bus resume`.
        Parked = "parked",
        /// It is no longer configured.
        Off = "off",
        Deleted = "deleted",
    }
}

impl Kind for Spec {
    type Phase = Phase;
    type Status = Status;
    const RECONCILED: bool = false;
}

pub type Sink = Typed<Spec>;

/// The cursor of the sink with this id. Its lease has the same name, unless it is a user's webhook.
pub fn cursor_name(id: &str) -> String {
    format!("{KIND}/{id}")
}

/// The counter of an organisation's webhooks.
pub fn quota_counter(org: &str) -> String {
    format!("webhooks/{org}")
}
