//! Names of topics, exchanges and routing keys that depend on the event.

use kernel::log::Event;

/// A name with places: `mainstay.{kind}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Kind,
    Type,
    Org,
}

impl Template {
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("`{` has no `}`")?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            pieces.push(match name {
                "kind" => Piece::Kind,
                "type" => Piece::Type,
                "org" => Piece::Org,
                other => {
                    return Err(format!(
                        "`{{{other}}}` is not known: {{kind}}, {{type}} and {{org}} are"
                    ));
                }
            });
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        if pieces.is_empty() {
            return Err("must not be empty".into());
        }
        Ok(Template(pieces))
    }

    /// The name for an event. What topics may not have in their names becomes `_`.
    pub fn name(&self, event: &Event) -> String {
        let mut name = String::new();
        for piece in &self.0 {
            let part = match piece {
                Piece::Text(text) => {
                    name.push_str(text);
                    continue;
                }
                Piece::Kind => event.subject.kind(),
                Piece::Type => &event.kind,
                Piece::Org => &event.org,
            };
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            name.extend(part.chars().map(|c| if legal(c) { c } else { '_' }));
        }
        name
    }

    /// The name, if it is the same for every event.
    pub fn fixed(&self) -> Option<&str> {
        match &self.0[..] {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::change::Cause;
    use kernel::{Json, Key, Timestamp};

    use super::*;

    #[test]
    fn places_are_filled_with_what_names_may_have() {
        let event = Event {
            seq: 1,
            kind: "mainstay.kafka.ready".into(),
            subject: Key::new("kafka", "a"),
            org: "Ärzte & Co/1".into(),
            at: Timestamp(0),
            data: Json::default(),
            cause: Cause::default(),
            effects: None,
        };
        let name = |text: &str| Template::parse(text).unwrap().name(&event);
        assert_eq!(name("events"), "events");
        assert_eq!(name("mainstay.{kind}"), "mainstay.kafka");
        assert_eq!(name("{type}"), "mainstay.kafka.ready");
        assert_eq!(name("{org}-{kind}.x"), "_rzte___Co_1-kafka.x");
        for (wrong, why) in [("", "empty"), ("{kind", "no `}`"), ("{king}", "{kind}, {type}")] {
            let error = Template::parse(wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
