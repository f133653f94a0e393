//! Derives the change of one stored object from a report, if there is one.

use kernel::change::{EventDraft, Write};
use kernel::identity::Principal;
use kernel::{Change, Error, Json, Key, Labels, Object, Result, Timestamp};
use serde_json::{Value, json};

use crate::reporting::report::{ClassReport, StreamReport};

pub const STREAM: &str = "stream";
pub const STREAM_CLASS: &str = "stream-class";

/// The longest description; lists show it.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// The operator that reports, and its cluster.
pub struct Author {
    pub cluster: String,
    pub org: String,
    pub subject: String,
}

impl Author {
    pub fn of(who: &Principal) -> Result<Author> {
        let cluster = who.agent_of.clone().filter(|cluster| !cluster.is_empty());
        let cluster = cluster.ok_or_else(|| {
            Error::Forbidden(
                "the token names no cluster; create one with `mainstay token --agent-of NAME`"
                    .into(),
            )
        })?;
        Ok(Author { cluster, org: who.org.clone(), subject: who.subject.clone() })
    }

    /// Whether the object was reported by the same cluster; others may not change it.
    pub fn owns(&self, object: &Object) -> bool {
        object.org == self.org && object.labels.get("cluster") == Some(&self.cluster)
    }

    pub fn class(
        &self,
        key: &Key,
        class: &ClassReport,
        stored: Option<&Object>,
        now: Timestamp,
    ) -> Change {
        let object = Object {
            name: class.name.clone(),
            phase: class.phase.clone(),
            description: shortened(&class.message),
            labels: self.labels([("kind", &class.kind)]),
            generation: class.generation,
            ..self.stored_or_new(key, stored, now)
        };
        let spec = json!({
            "cluster": self.cluster, "kind": class.kind, "api_version": class.api_version,
            "plural": class.plural,
        });
        let status = json!({ "message": class.message });
        written(object, &spec, &status, None, stored, now)
    }

    pub fn stream(
        &self,
        key: &Key,
        stream: &StreamReport,
        stored: Option<&Object>,
        now: Timestamp,
    ) -> Result<Change> {
        let class = Key::parse(&format!("{STREAM_CLASS}/{}", stream.class_uid))?;
        let created = Timestamp(stream.created.as_millisecond());
        let object = Object {
            name: stream.name.clone(),
            phase: stream.phase.clone(),
            description: shortened(&stream.message),
            labels: self.labels([
                ("namespace", &stream.namespace),
                ("kind", &stream.kind),
                ("class", &stream.class),
            ]),
            generation: stream.generation,
            ..self.stored_or_new(key, stored, created)
        };
        let spec = json!({
            "cluster": self.cluster, "namespace": stream.namespace, "name": stream.name,
            "kind": stream.kind, "class": stream.class, "backend": stream.backend,
            "schedule": stream.schedule, "suspended": stream.suspended,
            "paused": stream.paused, "definition": stream.definition,
        });
        let status = json!({
            "message": stream.message, "trouble": stream.trouble, "since": stream.since,
        });
        Ok(written(object, &spec, &status, Some(class), stored, now))
    }

    fn labels<const N: usize>(&self, pairs: [(&str, &String); N]) -> Labels {
        let mut labels: Labels =
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        labels.insert("cluster".into(), self.cluster.clone());
        labels
    }

    fn stored_or_new(&self, key: &Key, stored: Option<&Object>, created: Timestamp) -> Object {
        let new = || Object::new(key.clone(), &self.org, &self.subject, "", "", created);
        stored.cloned().unwrap_or_else(new)
    }

    /// Marks an object as deleted; its history is kept.
    pub fn end(&self, object: &Object, now: Timestamp) -> Change {
        let mut object = object.clone();
        object.phase = "deleted".into();
        object.updated_at = now;
        object.deleted_at = Some(now);
        Change {
            event: Some(EventDraft::for_object(&object, "deleted")),
            depends_on: Some(Vec::new()),
            write: Some(Write::Update(object)),
            ..Change::default()
        }
    }
}

fn shortened(message: &str) -> String {
    message.chars().take(DESCRIPTION_CHARS_MAX).collect()
}

/// Creates or updates an object; an empty change if it is current.
fn written(
    mut object: Object,
    spec: &Value,
    status: &Value,
    class: Option<Key>,
    stored: Option<&Object>,
    now: Timestamp,
) -> Change {
    object.deleted_at = None;
    object.observed = object.generation;
    // Stores may format JSON differently, so values are compared.
    let same = |json: &Json, value: &Value| json.parse::<Value>().is_ok_and(|was| was == *value);
    let other_spec = !same(&object.spec, spec);
    if other_spec {
        object.spec = Json::encode(spec);
    }
    if !same(&object.status, status) {
        object.status = Json::encode(status);
    }
    if stored == Some(&object) {
        return Change::default();
    }
    let what = match stored {
        None => "created",
        Some(before) if before.deleted_at.is_some() => "created",
        Some(before) if before.phase != object.phase => object.phase.as_str(),
        Some(_) if other_spec => "updated",
        Some(_) => "reported",
    };
    object.updated_at = now;
    Change {
        event: Some(EventDraft::for_object(&object, what)),
        depends_on: class.map(|class| vec![class]),
        write: Some(match stored {
            None => Write::Create(object),
            Some(_) => Write::Update(object),
        }),
        ..Change::default()
    }
}
