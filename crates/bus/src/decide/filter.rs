//! Which events a sink gets.

use kernel::log::Event;

use crate::model::settings::Filter;

/// What sign-in stores: objects with hashes of passwords and tokens.
const SIGN_IN: [&str; 3] = ["account", "installation", "session"];

/// Whether a sink with this filter gets the event. Those of sign-in must be named.
pub fn wants(filter: &Filter, event: &Event) -> bool {
    if filter.kinds.is_empty() && SIGN_IN.contains(&event.subject.kind()) {
        return false;
    }
    let any = |patterns: &[String], matches: &dyn Fn(&str) -> bool| {
        patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern))
    };
    any(&filter.kinds, &|kind| kind == event.subject.kind())
        && any(&filter.orgs, &|org| org == event.org)
        && any(&filter.types, &|pattern| match pattern.strip_suffix('*') {
            Some(start) => event.kind.starts_with(start),
            None => pattern == event.kind,
        })
        && (!filter.commands || event.cause.command.is_some())
}

#[cfg(test)]
mod tests {
    use kernel::change::Cause;
    use kernel::{Json, Key, Timestamp};

    use super::*;

    fn event(kind: &str, subject: &str, org: &str, command: Option<&str>) -> Event {
        Event {
            seq: 1,
            kind: kind.into(),
            subject: Key::parse(subject).unwrap(),
            org: org.into(),
            at: Timestamp(0),
            data: Json::default(),
            cause: Cause { command: command.map(str::to_owned), trace: None },
            effects: None,
        }
    }

    #[test]
    fn what_sign_in_stores_must_be_named() {
        let kinds = kernel::identity::kinds();
        let mut names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, SIGN_IN);
        let created = event("mainstay.account.created", "account/1", "", None);
        assert!(!wants(&Filter::default(), &created));
        let named = Filter { kinds: vec!["account".into()], ..Filter::default() };
        assert!(wants(&named, &created));
    }

    #[test]
    fn all_conditions_must_hold_and_an_empty_one_holds() {
        let ready = event("mainstay.kafka.ready", "kafka/1", "acme", Some("c"));
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let cases = [
            (&[][..], &[][..], &[][..], true),
            (&["kafka"], &[], &[], true),
            (&["widget", "kafka"], &[], &[], true),
            (&["widget"], &[], &[], false),
            (&[], &["mainstay.kafka.ready"], &[], true),
            (&[], &["mainstay.kafka.*"], &[], true),
            (&[], &["mainstay.kafka.read"], &[], false),
            (&[], &["*"], &["acme"], true),
            (&[], &[], &["globex"], false),
            (&["kafka"], &["mainstay.widget.*"], &["acme"], false),
        ];
        for (kinds, types, orgs, expected) in cases {
            let filter = Filter {
                kinds: list(kinds),
                types: list(types),
                orgs: list(orgs),
                commands: false,
            };
            assert_eq!(wants(&filter, &ready), expected, "{filter:?}");
        }
        let commands = Filter { commands: true, ..Filter::default() };
        assert!(wants(&commands, &ready));
        assert!(!wants(&commands, &event("mainstay.kafka.ready", "kafka/1", "acme", None)));
    }
}
