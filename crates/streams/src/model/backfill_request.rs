//! A BackfillRequest: a request to load all data of a stream again.

use jiff::Timestamp;
use kubernetes::OwnerReference;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::NamespacedName;
use super::class::Class;
use super::hash::go_compatible_json;
use super::meta::{Raw, Revision};
use super::stream::Stream;

pub type RawBackfillRequest = Raw<RawSpec, Option<RawStatus>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RawSpec {
    pub stream_class: String,
    pub stream_id: String,
    pub completed: bool,
    pub payload: Option<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawStatus {
    pub phase: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BackfillRequest {
    pub object_name: NamespacedName,
    pub uid: String,
    pub revision: Revision,
    pub created: Timestamp,
    pub class: String,
    pub stream: String,
    pub completed: bool,
    pub payload: Option<Value>,
    pub deleting: bool,
    pub phase: String,
    /// Empty for requests of users. The garbage collector deletes owned requests with their owner.
    pub owners: Box<[OwnerReference]>,
}

impl BackfillRequest {
    pub fn of(raw: &RawBackfillRequest) -> BackfillRequest {
        let RawBackfillRequest { metadata, spec, status } = raw;
        BackfillRequest {
            object_name: metadata.object_name(),
            revision: metadata.revision(),
            created: metadata.creation_timestamp.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            owners: metadata.owner_references.as_deref().unwrap_or_default().into(),
            uid: metadata.uid.clone(),
            class: spec.stream_class.clone(),
            stream: spec.stream_id.clone(),
            completed: spec.completed,
            payload: spec.payload.clone().filter(|payload| !payload.is_null()),
            phase: status.as_ref().map_or(String::new(), |status| status.phase.clone()),
        }
    }

    /// The initial request of a stream, before it is created.
    pub fn initial(class: &Class, stream: &Stream, name: String) -> BackfillRequest {
        BackfillRequest {
            object_name: NamespacedName::new(&stream.object_name().namespace, &name),
            uid: String::new(),
            revision: stream.revision,
            created: stream.created,
            class: class.name.to_string(),
            stream: stream.object_name().name.to_string(),
            completed: false,
            payload: None,
            deleting: false,
            phase: String::new(),
            owners: Box::default(),
        }
    }

    /// Whether the request is for this stream and not for an earlier one of the same kind and name,
    /// whose requests the garbage collector deletes.
    pub fn is_for(&self, kind: &str, stream: &Stream) -> bool {
        let mut owners = self.owners_of(kind, &stream.object_name().name);
        owners.all(|owner| *owner.uid == *stream.uid)
    }

    /// The owner references to streams of a kind and name.
    pub fn owners_of<'r>(
        &'r self,
        kind: &'r str,
        name: &'r str,
    ) -> impl Iterator<Item = &'r OwnerReference> {
        self.owners.iter().filter(move |owner| *owner.kind == *kind && *owner.name == *name)
    }

    /// The spec as the existing operator writes and hashes it.
    pub fn json(&self) -> String {
        let text = |text: &str| go_compatible_json(&Value::String(text.into()));
        let mut json =
            format!("{{\"streamClass\":{},\"streamId\":{}", text(&self.class), text(&self.stream));
        if self.completed {
            json.push_str(",\"completed\":true");
        }
        if let Some(payload) = &self.payload {
            json.push_str(",\"payload\":");
            json.push_str(&go_compatible_json(payload));
        }
        json.push('}');
        json
    }

    /// Merges the payload into a stream's spec: objects are merged, everything else is replaced.
    pub fn over(&self, spec: &Value) -> Option<Value> {
        let payload = self.payload.as_ref()?;
        let mut spec = spec.clone();
        lay_over(&mut spec, payload);
        Some(spec)
    }
}

fn lay_over(below: &mut Value, above: &Value) {
    let Value::Object(fields) = above else {
        *below = above.clone();
        return;
    };
    if !below.is_object() {
        *below = Value::Object(Map::new());
    }
    let Value::Object(into) = below else { return };
    for (name, value) in fields {
        lay_over(into.entry(name.clone()).or_insert(Value::Null), value);
    }
}
