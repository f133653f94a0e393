//! Derives the change of one stored object from a report, if there is one.

use kernel::change::Edge;
use kernel::identity::Principal;
use kernel::typed::Kind;
use kernel::{Change, Draft, Error, Key, Labels, Object, Result, Timestamp};
use serde::{Deserialize, Serialize};
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
        let spec = json!({
            "cluster": self.cluster, "kind": class.kind, "api_version": class.api_version,
            "plural": class.plural,
        });
        let draft = self
            .draft(key, stored, now)
            .name(&class.name)
            .phase(&class.phase)
            .description(shortened(&class.message))
            .labels(self.labels([("kind", &class.kind)]))
            .spec(&Reported(spec))
            .status(&json!({ "message": class.message }))
            .mirror(class.generation);
        written(draft, stored, now)
    }

    pub fn stream(
        &self,
        key: &Key,
        stream: &StreamReport,
        stored: Option<&Object>,
        now: Timestamp,
    ) -> Result<Change> {
        let class = Key::parse(&format!("{STREAM_CLASS}/{}", stream.class_uid))?;
        let spec = json!({
            "cluster": self.cluster, "namespace": stream.namespace, "name": stream.name,
            "kind": stream.kind, "class": stream.class, "backend": stream.backend,
            "schedule": stream.schedule, "suspended": stream.suspended,
            "paused": stream.paused, "definition": stream.definition,
        });
        let status = json!({
            "message": stream.message, "trouble": stream.trouble, "since": stream.since,
        });
        let labels = self.labels([
            ("namespace", &stream.namespace),
            ("kind", &stream.kind),
            ("class", &stream.class),
        ]);
        let draft = self
            .draft(key, stored, Timestamp(stream.created.as_millisecond()))
            .name(&stream.name)
            .phase(&stream.phase)
            .description(shortened(&stream.message))
            .labels(labels)
            .spec(&Reported(spec))
            .status(&status)
            .mirror(stream.generation);
        let depends_on = Some(vec![Edge::new(class, "class-of")]);
        Ok(Change { depends_on, ..written(draft, stored, now) })
    }

    fn labels<const N: usize>(&self, pairs: [(&str, &String); N]) -> Labels {
        let mut labels: Labels =
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        labels.insert("cluster".into(), self.cluster.clone());
        labels
    }

    fn draft<'a>(
        &self,
        key: &Key,
        stored: Option<&'a Object>,
        created: Timestamp,
    ) -> Draft<'a, Reported> {
        let new = || Draft::new(key.clone(), &self.org, &self.subject, "", created);
        stored.map_or_else(new, Draft::of)
    }

    /// Marks an object as deleted; its history is kept.
    pub fn end(&self, object: &Object, now: Timestamp) -> Change {
        let write = Draft::<Reported>::of(object).phase(&"deleted".into()).delete("deleted", now);
        Change { depends_on: Some(Vec::new()), ..Change::from(write) }
    }
}

/// The spec of a class or a stream, as its operator reported it.
#[derive(Serialize, Deserialize)]
struct Reported(Value);

impl Kind for Reported {
    type Phase = String;
    type Status = Value;
    const RECONCILED: bool = false;
}

fn shortened(message: &str) -> String {
    message.chars().take(DESCRIPTION_CHARS_MAX).collect()
}

/// Creates or updates an object; an empty change if it is current.
fn written(draft: Draft<'_, Reported>, stored: Option<&Object>, now: Timestamp) -> Change {
    if !draft.is_changed() {
        return Change::default();
    }
    let mut write = draft.report("reported", now);
    let what = match stored {
        None => "created",
        Some(before) if before.deleted_at.is_some() => "created",
        Some(before) if before.phase != write.object.phase => write.object.phase.as_str(),
        Some(before) if before.spec != write.object.spec => "updated",
        Some(_) => return write.into(),
    };
    write.event = what.to_owned().into();
    write.into()
}
