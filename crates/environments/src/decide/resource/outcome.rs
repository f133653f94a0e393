//! The status of a resource when an operation begins and when it ends. Both are written: before an
//! effect, so that a crash cannot hide it, and after.

use kernel::Timestamp;
use serde_json::{Map, Value};

use super::rule::{Operation, State};
use super::state;
use crate::model::resource::{Phase, Resource, Status};

/// How an operation ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Done {
        /// None that is sensitive.
        outputs: Map<String, Value>,
        /// Of the completed input that was applied.
        input_digest: String,
    },
    Failed(String),
}

/// The status when an operation begins in a phase.
pub fn entered(
    phase: Phase,
    spec: &Resource,
    status: &Status,
    operation: Operation,
    now: Timestamp,
) -> Status {
    let mut next = Status { since: Some(now), ..status.clone() };
    next.waits.clear();
    next.progress.clear();
    next.took_ms = None;
    if operation == Operation::Apply {
        next.incarnation = spec.incarnation;
    }
    if matches!(operation, Operation::Apply | Operation::Start) {
        // One that is up uses what it was applied on too, until it is applied again.
        if !phase.uses_dependencies() {
            next.applied_on.clear();
        }
        for on in &spec.depends_on {
            if !next.applied_on.contains(on) {
                next.applied_on.push(on.clone());
            }
        }
    }
    next
}

/// Phase and status when an operation has ended; no phase if the resource is gone.
pub fn finished(
    spec: &Resource,
    status: &Status,
    operation: Operation,
    outcome: Outcome,
    now: Timestamp,
) -> (Option<Phase>, Status) {
    let own: State = state(operation.phase(), spec, status, None);
    let mut next = Status { since: Some(now), ..status.clone() };
    next.waits.clear();
    next.progress.clear();
    next.took_ms = status.since.map(|since| since.until(now).as_millis() as u64);
    let succeeded = match outcome {
        Outcome::Failed(reason) => {
            next.reason = reason;
            // What exists may be half of it: the next apply must not be skipped.
            next.input_digest.clear();
            false
        }
        Outcome::Done { outputs, input_digest } => {
            next.reason.clear();
            match operation {
                Operation::Apply => {
                    next.outputs = outputs;
                    next.input_digest = input_digest;
                    next.applied_on.clone_from(&spec.depends_on);
                    next.drift = None;
                }
                Operation::Start | Operation::Stop => {}
                Operation::Destroy => {
                    let since = next.since;
                    next = Status { since, took_ms: next.took_ms, ..Status::default() };
                }
            }
            true
        }
    };
    let after = own.finished(operation, succeeded, own.current);
    if let Some(after) = after {
        next.yielding = after.yielding;
    }
    (after.map(|after| after.phase), next)
}
