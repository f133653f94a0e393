//! The status of a StreamClass and the events of its changes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::action::K8sEvent;
use crate::model::CrdVersion;
use crate::model::class::Class;
use crate::model::meta::seconds;
use crate::model::watch::{ApiError, WatchState};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassPhase {
    Pending,
    Ready,
    Failed,
}

impl ClassPhase {
    fn label(self, crd_version: CrdVersion) -> &'static str {
        match (crd_version, self) {
            (CrdVersion::V1, ClassPhase::Pending) => "Pending",
            (CrdVersion::V1, ClassPhase::Ready) => "Ready",
            (CrdVersion::V1, ClassPhase::Failed) => "Failed",
            (CrdVersion::V1Beta1, ClassPhase::Pending) => "INITIALIZING",
            (CrdVersion::V1Beta1, ClassPhase::Ready) => "READY",
            (CrdVersion::V1Beta1, ClassPhase::Failed) => "FAILED",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassStatus {
    pub phase: ClassPhase,
    pub reason: &'static str,
    pub message: String,
}

const READY: &str = "StreamClassReady";

/// Everything that the status of a class depends on.
#[derive(Debug, Clone, Copy)]
pub struct ClassFacts<'a> {
    pub class: &'a Class,
    /// The state of the watch of its streams; none if they are not watched.
    pub watch: Option<&'a WatchState>,
    /// A class that is watched and names the same kind.
    pub conflicting_class: Option<&'a Class>,
    /// What keeps the operator from acting at all.
    pub blocked: Option<&'a str>,
    pub foreign_writer: Option<&'a ForeignWriter>,
    /// How long a foreign writer must be silent before its streams are ours.
    pub other_quiet_s: u64,
}

/// Another operator that writes to streams of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignWriter {
    pub manager: String,
    pub streams: usize,
}

/// The status that a class should have; none if that is not known yet.
pub fn class_status(facts: ClassFacts<'_>) -> Option<ClassStatus> {
    let class = facts.class;
    let with = |phase, reason, message: String| Some(ClassStatus { phase, reason, message });
    if let Some(problem) = spec_problem(class) {
        return with(ClassPhase::Failed, "InvalidSpec", problem);
    }
    let Some(watch) = facts.watch else {
        let message = format!(
            "StreamClass {} names the kind {} already, so this one does nothing; remove one of the \
             two.",
            facts.conflicting_class?.name, class.kind
        );
        return with(ClassPhase::Failed, "KindTaken", message);
    };
    if let Some(blocked) = facts.blocked {
        return with(ClassPhase::Failed, "NotAllowed", blocked.into());
    }
    match (watch, facts.foreign_writer) {
        (WatchState::Unknown, _)
        | (WatchState::Failed(ApiError::Throttled(_) | ApiError::Unreachable(_)), _) => None,
        (WatchState::Failed(ApiError::NotFound), _) => {
            let (plural, group, version) = (&class.plural, &class.group, &class.version);
            let message = format!(
                "There is no CustomResourceDefinition {plural}.{group} with version {version}; its \
                 streams are watched as soon as there is."
            );
            with(ClassPhase::Pending, "KindMissing", message)
        }
        (WatchState::Failed(error), _) => {
            let message = format!("Its streams cannot be watched: {error}");
            with(ClassPhase::Failed, "NotAllowed", message)
        }
        (WatchState::Synced, Some(ForeignWriter { manager, streams })) => {
            let message = format!(
                "Another operator ({manager}) writes to {streams} of its streams; they are left \
                 to it until it has written nothing for {} s. Stop one of the two.",
                facts.other_quiet_s
            );
            with(ClassPhase::Ready, "OtherOperator", message)
        }
        (WatchState::Synced, None) => {
            let message = "StreamClass is ready and its streams are watched".into();
            with(ClassPhase::Ready, READY, message)
        }
    }
}

/// The first field of a class that is missing.
pub fn spec_problem(class: &Class) -> Option<String> {
    let fields = [
        ("apiVersion", class.version.as_str(), "such as v1"),
        ("kindRef", &class.kind, "the kind of its streams"),
        ("pluralName", &class.plural, "the plural in the kind's CRD"),
    ];
    let (field, _, what) = fields.into_iter().find(|(_, value, _)| value.is_empty())?;
    Some(format!("spec.{field} is empty: {what}"))
}

/// Whether two classes name the same streams. Jobs are labelled with the kind alone, so the same
/// kind in two groups counts as the same.
pub fn overlap(a: &Class, b: &Class) -> bool {
    let apart = matches!((&a.namespace, &b.namespace), (Some(a), Some(b)) if a != b);
    let same = a.kind == b.kind || (&a.group, &a.plural) == (&b.group, &b.plural);
    same && !apart
}

impl ClassStatus {
    pub fn is_error(&self) -> bool {
        self.reason != READY
    }

    /// Whether the class has this status already. The existing operator writes no condition, and a
    /// class that is ready needs none.
    pub fn is_of(&self, class: &Class) -> bool {
        let same = class.phase == self.phase.label(class.crd_version);
        let plain = !self.is_error() && class.message.is_empty();
        same && (plain || class.message == self.message)
    }

    pub fn patch(&self, class: &Class, now: Timestamp) -> Value {
        let phase = self.phase.label(class.crd_version);
        let condition = match class.crd_version {
            CrdVersion::V1 => json!({
                "type": "Ready",
                "status": if self.is_error() { "False" } else { "True" },
                "reason": self.reason,
                "message": self.message,
                "lastTransitionTime": seconds(now),
                "observedGeneration": class.generation,
            }),
            CrdVersion::V1Beta1 => {
                let kind = match self.phase {
                    ClassPhase::Ready if !self.is_error() => "READY",
                    ClassPhase::Failed => "ERROR",
                    _ => "WARNING",
                };
                json!({ "type": kind, "status": "True", "message": self.message })
            }
        };
        json!({ "status": { "phase": phase, "conditions": [condition] } })
    }

    /// The events of the change, named as the existing operator names them.
    pub fn events(&self, class: &Class) -> Vec<K8sEvent> {
        let mut events = Vec::new();
        if class.phase.is_empty() {
            events.push(K8sEvent::normal(
                "StreamClassCreated",
                "New StreamClass has been created and is pending processing",
            ));
        }
        if self.is_error() {
            let reason = match self.phase {
                ClassPhase::Failed if class.phase.eq_ignore_ascii_case("ready") => {
                    "StreamControllerError"
                }
                _ => self.reason,
            };
            events.push(K8sEvent::warning(reason, self.message.clone()));
        } else if class.phase.eq_ignore_ascii_case("failed") {
            events.push(K8sEvent::normal("StreamClassRecovered", self.message.clone()));
        } else if !class.phase.eq_ignore_ascii_case("ready") {
            events.push(K8sEvent::normal(READY, self.message.clone()));
        }
        events
    }
}
