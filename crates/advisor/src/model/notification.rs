//! Whether the webhook of a job knows that the job has ended. Part of the job's status.

use std::time::Duration;

use kernel::Timestamp;
use serde::{Deserialize, Serialize};

/// How far the webhook of a job is. Made when the job ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    pub delivery: Delivery,
    /// How often it was tried.
    #[serde(default)]
    pub tries: u32,
    /// When it is tried next.
    pub due: Timestamp,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    InProgress,
    Completed,
    /// Given up.
    Failed,
}

impl Delivery {
    /// As the existing service names it.
    pub fn wire(self) -> &'static str {
        match self {
            Delivery::InProgress => "IN_PROGRESS",
            Delivery::Completed => "COMPLETED",
            Delivery::Failed => "FAILED",
        }
    }
}

/// What came out of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    /// It will never be taken.
    Refused(String),
    Failed {
        why: String,
        /// As the receiver asks.
        wait: Option<Duration>,
    },
}

impl Notification {
    pub fn due(due: Timestamp) -> Notification {
        Notification { delivery: Delivery::InProgress, tries: 0, due, error: None }
    }

    /// When it is to be tried; never again once it is delivered or given up.
    pub fn next(&self) -> Option<Timestamp> {
        (self.delivery == Delivery::InProgress).then_some(self.due)
    }
}
