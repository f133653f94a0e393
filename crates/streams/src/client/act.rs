//! What a person can ask of a stream: to stop, to start, to start anew, to backfill, and the
//! downtimes of many at once. Only what is wanted is written; the operator does the rest.

use jiff::Timestamp;
use kernel::{Error, Result};
use serde_json::{Value, json};

use super::Client;
use super::find::Found;
use crate::model::meta::seconds;
use crate::model::{DOWNTIME, DOWNTIME_BEGIN, GROUP, Line, RESTART, STATE};

/// The name under which people at a command line write: existing tools use it, too, so that one
/// can end what the other began.
pub const MANAGER: &str = "kubectl-arcane";

/// Where a stream says that it is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    Spec,
    Execution,
    /// v1beta1.
    Annotation,
}

impl Switch {
    pub fn of(spec: &Value, line: Line) -> Switch {
        let layout = spec["execution"]["layoutVersion"].as_str().unwrap_or_default();
        match (layout, line) {
            ("", Line::Beta) => Switch::Annotation,
            ("", Line::V1) => Switch::Spec,
            _ => Switch::Execution,
        }
    }

    pub fn field(self) -> &'static str {
        match self {
            Switch::Spec => "spec.suspended",
            Switch::Execution => "spec.execution.suspended",
            Switch::Annotation => "the annotation arcane/state",
        }
    }

    /// A merge patch.
    pub fn patch(self, suspended: bool) -> Value {
        match self {
            Switch::Spec => json!({ "spec": { "suspended": suspended } }),
            Switch::Execution => json!({ "spec": { "execution": { "suspended": suspended } } }),
            Switch::Annotation => {
                let state = suspended.then_some("suspended");
                json!({ "metadata": { "annotations": { STATE: state } } })
            }
        }
    }
}

impl Found {
    pub fn switch(&self) -> Switch {
        Switch::of(&self.raw["spec"], self.class.line)
    }

    /// As far as it says so; what cannot be understood is not suspended.
    pub fn suspended(&self) -> bool {
        match self.switch() {
            Switch::Spec => self.raw["spec"]["suspended"] == true,
            Switch::Execution => self.raw["spec"]["execution"]["suspended"] == true,
            Switch::Annotation => self.annotation(STATE) == Some("suspended"),
        }
    }

    pub fn downtime(&self) -> Option<&str> {
        self.label(DOWNTIME)
    }
}

impl Client {
    async fn write(&self, found: &Found, patch: &Value) -> Result<Value> {
        let written = self.merge(&found.path(), MANAGER, patch).await?;
        written.ok_or_else(|| Error::NotFound(found.place().to_string()))
    }

    pub async fn suspend(&self, found: &Found, suspended: bool) -> Result<Value> {
        self.write(found, &found.switch().patch(suspended)).await
    }

    /// A new value is a new wish. A stream that has failed is started again by it, too.
    pub async fn restart(&self, found: &Found, now: Timestamp) -> Result<Value> {
        let mut patch = json!({ "metadata": { "annotations": { RESTART: now.to_string() } } });
        if found.class.line == Line::Beta && found.annotation(STATE) == Some("crash-loop") {
            patch["metadata"]["annotations"][STATE] = Value::Null;
        }
        self.write(found, &patch).await
    }

    /// Makes the request. The class and the stream are there: that is how `found` was found.
    pub async fn backfill(&self, found: &Found, payload: Option<Value>) -> Result<Value> {
        if !found.classed {
            let why = format!(
                "no StreamClass names the kind {}: nobody would carry it out",
                found.class.kind
            );
            return Err(Error::invalid("stream", why));
        }
        let place = found.place();
        if found.class.line == Line::Beta {
            // Before there were requests, an annotation asked for it.
            if payload.is_some() {
                let why =
                    "a stream of v1beta1 takes none: its backfills are asked for by an annotation";
                return Err(Error::invalid("payload", why));
            }
            let patch = json!({ "metadata": { "annotations": { STATE: "reload-requested" } } });
            return self.write(found, &patch).await;
        }
        let mut spec = json!({ "streamClass": &*found.class.name, "streamId": &*place.name });
        if let Some(payload) = payload {
            spec["payload"] = payload;
        }
        let request = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "BackfillRequest",
            "metadata": {
                "generateName": format!("{}-backfill-", place.name),
                "namespace": &*place.namespace,
            },
            "spec": spec,
        });
        let path = format!("/apis/{GROUP}/v1/namespaces/{}/backfillrequests", place.namespace);
        self.create(&path, MANAGER, &request).await
    }

    /// Suspends a stream as part of a downtime.
    pub async fn declare_downtime(
        &self,
        found: &Found,
        key: &str,
        now: Timestamp,
    ) -> Result<Value> {
        let since = seconds(now);
        self.write(found, &downtime_patch(found.switch(), Some((key, &since)))).await
    }

    /// Ends a stream's part in a downtime: it goes on.
    pub async fn end_downtime(&self, found: &Found) -> Result<Value> {
        self.write(found, &downtime_patch(found.switch(), None)).await
    }
}

/// In one write, so that there is no stream that is suspended for no known reason.
fn downtime_patch(switch: Switch, of: Option<(&str, &str)>) -> Value {
    let mut patch = switch.patch(of.is_some());
    let (key, since) = of.unzip();
    patch["metadata"]["labels"] = json!({ DOWNTIME: key });
    patch["metadata"]["annotations"][DOWNTIME_BEGIN] = json!(since);
    patch
}

/// A downtime's name is the value of a label.
pub fn valid_downtime(key: &str) -> Result<()> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let fits = key.len() <= 63
        && edge(key.chars().next())
        && edge(key.chars().next_back())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fits {
        return Ok(());
    }
    Err(Error::invalid(
        "KEY",
        "must be 1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_is_suspended_where_it_says_so() {
        let flat = json!({ "suspended": false });
        let v2 = json!({ "execution": { "layoutVersion": "v2" } });
        let empty = json!({ "execution": { "layoutVersion": "" } });
        for (spec, line, switch) in [
            (&flat, Line::V1, Switch::Spec),
            (&flat, Line::Beta, Switch::Annotation),
            (&v2, Line::V1, Switch::Execution),
            (&v2, Line::Beta, Switch::Execution),
            (&empty, Line::V1, Switch::Spec),
        ] {
            assert_eq!(Switch::of(spec, line), switch, "{spec} {line:?}");
        }
        assert_eq!(Switch::Spec.patch(true), json!({ "spec": { "suspended": true } }));
        let on = json!({ "metadata": { "annotations": { "arcane/state": null } } });
        assert_eq!(Switch::Annotation.patch(false), on);
    }

    #[test]
    fn a_downtime_begins_and_ends_in_one_write() {
        let begin = downtime_patch(Switch::Execution, Some(("db-move", "2026-11-16T07:00:00Z")));
        assert_eq!(
            begin,
            json!({
                "spec": { "execution": { "suspended": true } },
                "metadata": {
                    "labels": { "arcane.sneaksanddata.com/downtime": "db-move" },
                    "annotations": {
                        "arcane.sneaksanddata.com/downtime-begin-ts": "2026-11-16T07:00:00Z"
                    },
                },
            })
        );
        let end = downtime_patch(Switch::Annotation, None);
        let annotations = &end["metadata"]["annotations"];
        assert_eq!(annotations["arcane/state"], Value::Null);
        assert!(annotations.as_object().unwrap().contains_key(DOWNTIME_BEGIN));
        assert!(end["metadata"]["labels"].as_object().unwrap().contains_key(DOWNTIME));
    }

    #[test]
    fn a_downtime_is_named_as_labels_are() {
        for good in ["a", "db-move_2026.11", &"x".repeat(63)] {
            assert!(valid_downtime(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "ü", &"x".repeat(64)] {
            assert!(valid_downtime(bad).is_err(), "{bad}");
        }
    }
}
