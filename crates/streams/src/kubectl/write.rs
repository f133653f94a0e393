//! Requests of users: suspend, start, restart, backfill, downtimes. Only the desired state is
//! written; the operator does the rest.

use jiff::Timestamp;
use kernel::{Error, Result};
use kubernetes::HttpRequest;
use serde_json::{Value, json};

use super::find::FoundStream;
use super::{Client, not_found_as_none};
use crate::model::meta::seconds;
use crate::model::watch::Resource;
use crate::model::{CrdVersion, DOWNTIME, DOWNTIME_BEGIN, GROUP, RESTART, STATE};
use crate::ports::kubernetes::paths;

/// The field manager. Existing tools use the same one, so that each can undo what the other did.
pub const MANAGER: &str = "kubectl-arcane";

/// The field that suspends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendField {
    Spec,
    Execution,
    /// v1beta1.
    Annotation,
}

impl SuspendField {
    pub fn of(spec: &Value, crd_version: CrdVersion) -> SuspendField {
        let layout = spec["execution"]["layoutVersion"].as_str().unwrap_or_default();
        match (layout, crd_version) {
            ("", CrdVersion::V1Beta1) => SuspendField::Annotation,
            ("", CrdVersion::V1) => SuspendField::Spec,
            _ => SuspendField::Execution,
        }
    }

    pub fn field(self) -> &'static str {
        match self {
            SuspendField::Spec => "spec.suspended",
            SuspendField::Execution => "spec.execution.suspended",
            SuspendField::Annotation => "the annotation arcane/state",
        }
    }

    /// A merge patch.
    pub fn patch(self, suspended: bool) -> Value {
        match self {
            SuspendField::Spec => json!({ "spec": { "suspended": suspended } }),
            SuspendField::Execution => {
                json!({ "spec": { "execution": { "suspended": suspended } } })
            }
            SuspendField::Annotation => {
                let state = suspended.then_some("suspended");
                json!({ "metadata": { "annotations": { STATE: state } } })
            }
        }
    }
}

impl FoundStream {
    pub fn suspend_field(&self) -> SuspendField {
        SuspendField::of(&self.raw["spec"], self.class.crd_version)
    }

    /// Whether the stream is suspended. A value that is not a boolean does not suspend it.
    pub fn suspended(&self) -> bool {
        match self.suspend_field() {
            SuspendField::Spec => self.raw["spec"]["suspended"] == true,
            SuspendField::Execution => self.raw["spec"]["execution"]["suspended"] == true,
            SuspendField::Annotation => self.annotation(STATE) == Some("suspended"),
        }
    }

    pub fn downtime(&self) -> Option<&str> {
        self.label(DOWNTIME)
    }
}

impl Client {
    async fn write(&self, found: &FoundStream, patch: &Value) -> Result<Value> {
        let path = format!("{}?fieldManager={MANAGER}", found.path());
        let written = not_found_as_none(self.send(HttpRequest::merge_patch(path, patch)).await)?;
        written.ok_or_else(|| Error::NotFound(found.object_name().to_string()))
    }

    pub async fn suspend(&self, found: &FoundStream, suspended: bool) -> Result<Value> {
        self.write(found, &found.suspend_field().patch(suspended)).await
    }

    /// Requests a restart with a new value. This also restarts a failed stream of v1beta1.
    pub async fn restart(&self, found: &FoundStream, now: Timestamp) -> Result<Value> {
        let mut patch = json!({ "metadata": { "annotations": { RESTART: now.to_string() } } });
        if found.class.crd_version == CrdVersion::V1Beta1
            && found.annotation(STATE) == Some("crash-loop")
        {
            patch["metadata"]["annotations"][STATE] = Value::Null;
        }
        self.write(found, &patch).await
    }

    /// Creates a BackfillRequest.
    pub async fn backfill(&self, found: &FoundStream, payload: Option<Value>) -> Result<Value> {
        if !found.has_class {
            let why = format!(
                "no StreamClass names the kind {}: no operator would carry it out",
                found.class.kind
            );
            return Err(Error::invalid("stream", why));
        }
        let object_name = found.object_name();
        if found.class.crd_version == CrdVersion::V1Beta1 {
            // v1beta1 requests a backfill by annotation.
            if payload.is_some() {
                let why =
                    "a stream of v1beta1 takes none: its backfills are asked for by an annotation";
                return Err(Error::invalid("payload", why));
            }
            let patch = json!({ "metadata": { "annotations": { STATE: "reload-requested" } } });
            return self.write(found, &patch).await;
        }
        let mut spec = json!({ "streamClass": &*found.class.name, "streamId": &*object_name.name });
        if let Some(payload) = payload {
            spec["payload"] = payload;
        }
        let request = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "BackfillRequest",
            "metadata": {
                "generateName": format!("{}-backfill-", object_name.name),
                "namespace": &*object_name.namespace,
            },
            "spec": spec,
        });
        let path = paths::collection(&Resource::BackfillRequests);
        let path = path.path(Some(&object_name.namespace));
        let path = format!("{path}?fieldManager={MANAGER}");
        self.send(HttpRequest::create(path, &request)).await
    }

    /// Suspends a stream as part of a downtime.
    pub async fn declare_downtime(
        &self,
        found: &FoundStream,
        key: &str,
        now: Timestamp,
    ) -> Result<Value> {
        let since = seconds(now);
        self.write(found, &downtime_patch(found.suspend_field(), Some((key, &since)))).await
    }

    /// Ends a stream's part in a downtime.
    pub async fn end_downtime(&self, found: &FoundStream) -> Result<Value> {
        self.write(found, &downtime_patch(found.suspend_field(), None)).await
    }
}

/// One patch, so that no stream is suspended without a recorded reason.
fn downtime_patch(suspend_field: SuspendField, of: Option<(&str, &str)>) -> Value {
    let mut patch = suspend_field.patch(of.is_some());
    let (key, since) = of.unzip();
    patch["metadata"]["labels"] = json!({ DOWNTIME: key });
    patch["metadata"]["annotations"][DOWNTIME_BEGIN] = json!(since);
    patch
}

/// Checks the key of a downtime, which is the value of a label.
pub fn valid_downtime(key: &str) -> Result<()> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let matches = key.len() <= 63
        && edge(key.chars().next())
        && edge(key.chars().next_back())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if matches {
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
        for (spec, crd_version, suspend_field) in [
            (&flat, CrdVersion::V1, SuspendField::Spec),
            (&flat, CrdVersion::V1Beta1, SuspendField::Annotation),
            (&v2, CrdVersion::V1, SuspendField::Execution),
            (&v2, CrdVersion::V1Beta1, SuspendField::Execution),
            (&empty, CrdVersion::V1, SuspendField::Spec),
        ] {
            assert_eq!(
                SuspendField::of(spec, crd_version),
                suspend_field,
                "{spec} {crd_version:?}"
            );
        }
        assert_eq!(SuspendField::Spec.patch(true), json!({ "spec": { "suspended": true } }));
        let on = json!({ "metadata": { "annotations": { "arcane/state": null } } });
        assert_eq!(SuspendField::Annotation.patch(false), on);
    }

    #[test]
    fn a_downtime_begins_and_ends_in_one_write() {
        let begin =
            downtime_patch(SuspendField::Execution, Some(("db-move", "2026-11-16T07:00:00Z")));
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
        let end = downtime_patch(SuspendField::Annotation, None);
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
