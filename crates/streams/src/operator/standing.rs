//! What a class's status should say, and the events that go with it. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::classes::{Classes, Sight, problem};
use crate::cluster::Refused;
use crate::decide::command::Happened;
use crate::decide::others_turn;
use crate::index::Index;
use crate::model::Line;
use crate::model::class::Class;
use crate::model::meta::seconds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassPhase {
    Pending,
    Ready,
    Failed,
}

impl ClassPhase {
    fn label(self, line: Line) -> &'static str {
        match (line, self) {
            (Line::V1, ClassPhase::Pending) => "Pending",
            (Line::V1, ClassPhase::Ready) => "Ready",
            (Line::V1, ClassPhase::Failed) => "Failed",
            (Line::Beta, ClassPhase::Pending) => "INITIALIZING",
            (Line::Beta, ClassPhase::Ready) => "READY",
            (Line::Beta, ClassPhase::Failed) => "FAILED",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub phase: ClassPhase,
    pub reason: &'static str,
    pub message: String,
}

const READY: &str = "StreamClassReady";

/// How a class stands; none if that is not known yet. `barred` is what keeps the operator from
/// acting at all.
pub fn standing(
    class: &Class,
    classes: &Classes,
    index: &Index,
    barred: Option<&str>,
    now: Timestamp,
) -> Option<Standing> {
    let with = |phase, reason, message: String| Some(Standing { phase, reason, message });
    if let Some(problem) = problem(class) {
        return with(ClassPhase::Failed, "InvalidSpec", problem);
    }
    let Some(followed) = classes.followed(&class.name) else {
        let rival = classes.rival(class)?;
        let message = format!(
            "StreamClass {} names the kind {} already, so this one does nothing; remove one of the \
             two.",
            rival.name, class.kind
        );
        return with(ClassPhase::Failed, "KindTaken", message);
    };
    if let Some(barred) = barred {
        return with(ClassPhase::Failed, "NotAllowed", barred.into());
    }
    match &followed.sight {
        Sight::Unknown | Sight::Trouble(Refused::Busy(_) | Refused::Away(_)) => None,
        Sight::Trouble(Refused::NotFound) => {
            let (plural, group, version) = (&class.plural, &class.group, &class.version);
            let message = format!(
                "There is no CustomResourceDefinition {plural}.{group} with version {version}; its \
                 streams are watched as soon as there is."
            );
            with(ClassPhase::Pending, "KindMissing", message)
        }
        Sight::Trouble(refused) => {
            let message = format!("Its streams cannot be watched: {refused}");
            with(ClassPhase::Failed, "NotAllowed", message)
        }
        Sight::Clear => match others(class, index, now) {
            Some((manager, count)) => {
                let message = format!(
                    "Another operator ({manager}) writes to {count} of its streams; they are left \
                     to it until it has written nothing for {} s. Stop one of the two.",
                    index.settings.other_quiet_s
                );
                with(ClassPhase::Ready, "OtherOperator", message)
            }
            None => {
                let message = "StreamClass is ready and its streams are watched".into();
                with(ClassPhase::Ready, READY, message)
            }
        },
    }
}

/// The name of another operator that writes to streams of the class, and to how many.
fn others(class: &Class, index: &Index, now: Timestamp) -> Option<(String, usize)> {
    let of = index.streams().filter(|stream| stream.key.class == class.name);
    let left: Vec<_> = of.filter(|stream| others_turn(index, stream, now).is_some()).collect();
    let (manager, _) = left.first()?.other_writer.as_deref()?;
    Some((manager.clone(), left.len()))
}

impl Standing {
    pub fn is_trouble(&self) -> bool {
        self.reason != READY
    }

    /// Whether the class says so already. The existing operator writes no condition, and one that
    /// is ready needs none.
    pub fn is_of(&self, class: &Class) -> bool {
        let same = class.phase == self.phase.label(class.line);
        let plain = !self.is_trouble() && class.message.is_empty();
        same && (plain || class.message == self.message)
    }

    pub fn patch(&self, class: &Class, now: Timestamp) -> Value {
        let phase = self.phase.label(class.line);
        let condition = match class.line {
            Line::V1 => json!({
                "type": "Ready",
                "status": if self.is_trouble() { "False" } else { "True" },
                "reason": self.reason,
                "message": self.message,
                "lastTransitionTime": seconds(now),
                "observedGeneration": class.generation,
            }),
            Line::Beta => {
                let kind = match self.phase {
                    ClassPhase::Ready if !self.is_trouble() => "READY",
                    ClassPhase::Failed => "ERROR",
                    _ => "WARNING",
                };
                json!({ "type": kind, "status": "True", "message": self.message })
            }
        };
        json!({ "status": { "phase": phase, "conditions": [condition] } })
    }

    /// What is told of the change, in the words of the existing operator where it has some.
    pub fn events(&self, class: &Class) -> Vec<Happened> {
        let mut events = Vec::new();
        if class.phase.is_empty() {
            events.push(Happened::normal(
                "StreamClassCreated",
                "New StreamClass has been created and is pending processing",
            ));
        }
        if self.is_trouble() {
            let reason = match self.phase {
                ClassPhase::Failed if class.phase.eq_ignore_ascii_case("ready") => {
                    "StreamControllerError"
                }
                _ => self.reason,
            };
            events.push(Happened::warning(reason, self.message.clone()));
        } else if class.phase.eq_ignore_ascii_case("failed") {
            events.push(Happened::normal("StreamClassRecovered", self.message.clone()));
        } else if !class.phase.eq_ignore_ascii_case("ready") {
            events.push(Happened::normal(READY, self.message.clone()));
        }
        events
    }
}
