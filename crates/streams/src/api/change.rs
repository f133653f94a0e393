//! What a report makes of one object: a change, or none if all of it is known. Pure.

use kernel::change::{EventDraft, Write};
use kernel::identity::Principal;
use kernel::{Change, Error, Json, Key, Labels, Object, Result, Timestamp};
use serde_json::{Value, json};

use crate::report::{ClassReport, StreamReport};

pub const STREAM: &str = "stream";
pub const STREAM_CLASS: &str = "stream-class";

/// Of a description; lists show it.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// Who reports, and of which cluster.
pub struct Author {
    pub cluster: String,
    pub org: String,
    pub subject: String,
}

/// An object as it should be.
struct Wanted {
    name: String,
    phase: String,
    description: String,
    labels: Labels,
    spec: Value,
    status: Value,
    generation: i64,
    created: Timestamp,
}

impl Author {
    pub fn of(who: &Principal) -> Result<Author> {
        let cluster = who.agent_of.clone().filter(|cluster| !cluster.is_empty());
        let cluster = cluster.ok_or_else(|| {
            Error::Forbidden("the token is of no cluster: `mainstay token --agent-of NAME`".into())
        })?;
        Ok(Author { cluster, org: who.org.clone(), subject: who.subject.clone() })
    }

    /// Nobody writes what another cluster reported.
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
        let wanted = Wanted {
            name: class.name.clone(),
            phase: class.phase.clone(),
            description: class.message.clone(),
            labels: self.labels([("kind", &class.kind)]),
            spec: json!({
                "cluster": self.cluster, "kind": class.kind, "api_version": class.api_version,
                "plural": class.plural,
            }),
            status: json!({ "message": class.message }),
            generation: class.generation,
            created: now,
        };
        self.written(key, wanted, None, stored, now)
    }

    pub fn stream(
        &self,
        key: &Key,
        stream: &StreamReport,
        stored: Option<&Object>,
        now: Timestamp,
    ) -> Result<Change> {
        let class = Key::parse(&format!("{STREAM_CLASS}/{}", stream.class_uid))?;
        let wanted = Wanted {
            name: stream.name.clone(),
            phase: stream.phase.clone(),
            description: stream.message.clone(),
            labels: self.labels([
                ("namespace", &stream.namespace),
                ("kind", &stream.kind),
                ("class", &stream.class),
            ]),
            spec: json!({
                "cluster": self.cluster, "namespace": stream.namespace, "name": stream.name,
                "kind": stream.kind, "class": stream.class, "backend": stream.backend,
                "schedule": stream.schedule, "suspended": stream.suspended,
                "paused": stream.paused, "definition": stream.definition,
            }),
            status: json!({
                "message": stream.message, "trouble": stream.trouble, "since": stream.since,
            }),
            generation: stream.generation,
            created: Timestamp(stream.created.as_millisecond()),
        };
        Ok(self.written(key, wanted, Some(class), stored, now))
    }

    fn labels<const N: usize>(&self, pairs: [(&str, &String); N]) -> Labels {
        let mut labels: Labels =
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        labels.insert("cluster".into(), self.cluster.clone());
        labels
    }

    /// Nothing, if it is so already.
    fn written(
        &self,
        key: &Key,
        wanted: Wanted,
        class: Option<Key>,
        stored: Option<&Object>,
        now: Timestamp,
    ) -> Change {
        let new =
            || Object::new(key.clone(), &self.org, &self.subject, &wanted.name, "", wanted.created);
        let before = stored.cloned().unwrap_or_else(new);
        let mut object = before.clone();
        object.name = wanted.name;
        object.phase = wanted.phase;
        object.description = wanted.description.chars().take(DESCRIPTION_CHARS_MAX).collect();
        object.labels = wanted.labels;
        object.deleted_at = None;
        // Stores may write JSON differently: only what it means counts.
        let same =
            |json: &Json, value: &Value| json.parse::<Value>().is_ok_and(|was| was == *value);
        let other_spec = !same(&object.spec, &wanted.spec);
        if other_spec {
            object.spec = Json::encode(&wanted.spec);
        }
        if !same(&object.status, &wanted.status) {
            object.status = Json::encode(&wanted.status);
        }
        (object.generation, object.observed) = (wanted.generation, wanted.generation);
        if stored.is_some() && object == before {
            return Change::default();
        }
        let what = match stored {
            None => "created",
            Some(_) if before.deleted_at.is_some() => "created",
            Some(_) if before.phase != object.phase => object.phase.as_str(),
            Some(_) if other_spec => "updated",
            Some(_) => "reported",
        };
        object.updated_at = now;
        Change {
            event: Some(EventDraft::of(&object, what)),
            depends_on: class.map(|class| vec![class]),
            write: Some(match stored {
                None => Write::Create(object),
                Some(_) => Write::Update(object),
            }),
            ..Change::default()
        }
    }

    /// It is no more; its history stays.
    pub fn end(&self, object: &Object, now: Timestamp) -> Change {
        let mut object = object.clone();
        object.phase = "deleted".into();
        object.updated_at = now;
        object.deleted_at = Some(now);
        Change {
            event: Some(EventDraft::of(&object, "deleted")),
            depends_on: Some(Vec::new()),
            write: Some(Write::Update(object)),
            ..Change::default()
        }
    }
}
