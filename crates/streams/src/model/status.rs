//! The status that the operator writes to a stream.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::CrdVersion;
use super::meta::seconds;
use super::phase::Phase;
use super::stream::Stream;

/// The desired status of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub phase: Phase,
    pub message: String,
    /// The hash of the configuration that the status is about.
    pub hash: String,
    /// The condition is an error, whatever the phase.
    pub error: bool,
}

impl Status {
    pub fn new(phase: Phase, stream: &Stream, message: impl Into<String>) -> Status {
        Status { phase, message: message.into(), hash: stream.hash.to_string(), error: false }
    }

    pub fn error(phase: Phase, stream: &Stream, message: impl Into<String>) -> Status {
        Status { error: true, ..Status::new(phase, stream, message) }
    }

    /// The type and the reason of the condition, as the existing operator names them.
    pub fn condition(&self) -> (&'static str, &'static str) {
        let reason = match self.phase {
            Phase::New | Phase::Pending => "StreamPending",
            Phase::Backfilling => "StreamBackfilling",
            Phase::Running => "StreamRunning",
            Phase::Scheduled => "StreamScheduled",
            Phase::Suspended => "StreamSuspended",
            Phase::Failed => "StreamFailed",
        };
        let kind = match self.phase {
            _ if self.error => "Error",
            Phase::Failed => "Error",
            Phase::New | Phase::Pending | Phase::Suspended => "Warning",
            Phase::Backfilling | Phase::Running | Phase::Scheduled => "Ready",
        };
        (kind, reason)
    }

    /// Whether the stream has this status already.
    pub fn is_of(&self, stream: &Stream, crd_version: CrdVersion) -> bool {
        if self.phase.label(crd_version) != stream.phase.label(crd_version) {
            return false;
        }
        let Some(status) = &stream.status else {
            return self.phase == Phase::New && self.message.is_empty();
        };
        // The existing operator does not name the Job; that alone is not worth a write.
        let says =
            |message: &str| *message == *self.message || message == without_job(&self.message);
        let same_hash = *status.hash == *self.hash || crd_version == CrdVersion::V1Beta1;
        says(&status.message) && same_hash && status.kind.eq_ignore_ascii_case(self.condition().0)
    }

    /// A merge patch. The API server drops fields that a CRD does not define; the patch has no
    /// field that one would reject.
    pub fn patch(&self, stream: &Stream, crd_version: CrdVersion, now: Timestamp) -> Value {
        let (kind, reason) = self.condition();
        let kind = match crd_version {
            CrdVersion::V1 => kind.to_owned(),
            CrdVersion::V1Beta1 => kind.to_uppercase(),
        };
        let unchanged = stream.phase == self.phase;
        let status = stream.status.as_ref().filter(|_| unchanged);
        let since = status.and_then(|status| status.since).unwrap_or(now);
        let mut status = json!({
            "configurationHash": self.hash,
            "conditions": [{
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": self.message,
                "lastTransitionTime": seconds(since),
                "observedGeneration": stream.generation,
            }],
        });
        // v1beta1 rejects an empty phase.
        if self.phase != Phase::New || crd_version == CrdVersion::V1 {
            status["phase"] = json!(self.phase.label(crd_version));
        }
        json!({ "status": status })
    }
}

/// The part of a status message that names the Job, so that the result of the Job can be looked up
/// after a restart of the operator. The CRDs of plugins have no other field for it.
pub fn job_suffix(uid: &str) -> String {
    format!(" in Job {uid}")
}

/// The uid of the Job that a status message names.
pub fn job_in_message(message: &str) -> Option<&str> {
    let uid = message.split_once(" in Job ")?.1;
    uid.get(..36).filter(|uid| uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
}

/// The end of a status message that names a backfill request; as the existing operator writes it.
pub fn request_suffix(name: &str) -> String {
    format!(", {REQUEST}{name}")
}

/// The name of the backfill request that a status message names.
pub fn request_in_message(message: &str) -> Option<&str> {
    message.rsplit_once(REQUEST).map(|(_, name)| name)
}

const REQUEST: &str = "request ID: ";

fn without_job(message: &str) -> String {
    match job_in_message(message) {
        Some(uid) => message.replacen(&job_suffix(uid), "", 1),
        None => message.into(),
    }
}
