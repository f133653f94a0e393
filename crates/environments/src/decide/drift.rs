//! Drift: what was observed against what was applied. What of it is repaired, adopted or only
//! reported, since when it is so, and when to observe again.

use std::time::Duration;

use kernel::Timestamp;
use serde_json::Value;

use super::plan::diff::diff_values;
use crate::model::drift::{Drift, DriftKind, DriftPolicy, FieldDiff, Handling};

/// What an observation found.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Present(Value),
    Absent,
    /// It could not be observed. That is not drift, and does not settle it either.
    Unknown(String),
}

/// What is done about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// What stays, to be shown.
    pub drift: Option<Drift>,
    /// The event: it was found now, or it is gone.
    pub found: bool,
    pub cleared: bool,
    /// Apply again.
    pub repair: bool,
    /// These fields of the input take the values that were seen.
    pub adopt: Vec<FieldDiff>,
}

/// Compares. `applied` has the fields as they were applied; `seen` may have more, which executors
/// know of and nobody asked for.
pub fn decide(
    applied: &Value,
    seen: &Seen,
    policy: &DriftPolicy,
    before: Option<&Drift>,
    now: Timestamp,
) -> Verdict {
    let (kind, diff) = match seen {
        Seen::Unknown(_) => return Verdict { drift: before.cloned(), ..Verdict::default() },
        Seen::Absent => (DriftKind::Missing, Vec::new()),
        Seen::Present(seen) => {
            let mut diff = Vec::new();
            diff_values("", Some(applied), Some(seen), &mut diff);
            // What nobody asked for is the executor's to fill in.
            diff.retain(|field| field.before.is_some());
            if diff.is_empty() {
                return Verdict { cleared: before.is_some(), ..Verdict::default() };
            }
            (DriftKind::Changed, diff)
        }
    };
    let first_seen =
        before.filter(|before| before.kind == kind).map_or(now, |before| before.first_seen);
    let by =
        |handling: Handling| diff.iter().filter(move |field| policy.of(&field.field) == handling);
    let repair = match kind {
        // There is nothing to adopt of what is not there.
        DriftKind::Missing => policy.default == Handling::Repair,
        _ => by(Handling::Repair).next().is_some(),
    };
    let adopt = by(Handling::Adopt).cloned().collect();
    let found = before.is_none_or(|before| before.kind != kind || before.diff != diff);
    Verdict { drift: Some(Drift { kind, first_seen, diff }), found, cleared: false, repair, adopt }
}

/// Observed at the latest so often, and at the most.
pub const CHECK_MAX: Duration = Duration::from_secs(3600);
pub const CHECK_MIN: Duration = Duration::from_secs(60);

/// How long until the next observation: soon after something changed, seldom when nothing did. What
/// was quiet for an hour is observed again after a quarter of that.
pub fn check_after(changed: Timestamp, now: Timestamp) -> Duration {
    (changed.until(now) / 4).clamp(CHECK_MIN, CHECK_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::json;

    fn policy(default: Handling, fields: &[(&str, Handling)]) -> DriftPolicy {
        let fields: BTreeMap<String, Handling> =
            fields.iter().map(|(field, handling)| ((*field).to_owned(), *handling)).collect();
        DriftPolicy { default, fields }
    }

    #[test]
    fn each_field_is_handled_by_its_policy() {
        let applied = json!({"size": 2, "tags": {"owner": "a"}, "zone": "eu"});
        let seen =
            Seen::Present(json!({"size": 3, "tags": {"owner": "b"}, "zone": "us", "id": "i-1"}));
        let policy =
            policy(Handling::Report, &[("size", Handling::Repair), ("tags", Handling::Adopt)]);
        let verdict = decide(&applied, &seen, &policy, None, Timestamp(5));
        assert!(verdict.found && verdict.repair && !verdict.cleared);
        let drift = verdict.drift.unwrap();
        assert_eq!((drift.kind, drift.first_seen), (DriftKind::Changed, Timestamp(5)));
        let fields: Vec<&str> = drift.diff.iter().map(|field| field.field.as_str()).collect();
        assert_eq!(fields, ["size", "tags.owner", "zone"], "the id is the executor's");
        assert_eq!(verdict.adopt[0].after, Some(json!("b")));
        let reported = decide(&applied, &seen, &DriftPolicy::default(), None, Timestamp(5));
        assert!(!reported.repair && reported.adopt.is_empty());
    }

    #[test]
    fn the_first_time_is_kept_and_an_unknown_observation_changes_nothing() {
        let applied = json!({"size": 2});
        let seen = |size: i64| Seen::Present(json!({ "size": size }));
        let policy = DriftPolicy::default();
        let first = decide(&applied, &seen(3), &policy, None, Timestamp(5)).drift;
        let again = decide(&applied, &seen(3), &policy, first.as_ref(), Timestamp(9));
        assert!(!again.found);
        assert_eq!(again.drift.as_ref().unwrap().first_seen, Timestamp(5));
        let more = decide(&applied, &seen(4), &policy, first.as_ref(), Timestamp(9));
        assert!(more.found && more.drift.unwrap().first_seen == Timestamp(5));
        let unknown = decide(
            &applied,
            &Seen::Unknown("timeout".into()),
            &policy,
            first.as_ref(),
            Timestamp(9),
        );
        assert_eq!((unknown.drift, unknown.cleared), (first.clone(), false));
        let cleared = decide(&applied, &seen(2), &policy, first.as_ref(), Timestamp(9));
        assert!(cleared.cleared && cleared.drift.is_none());
        assert_eq!(decide(&applied, &seen(2), &policy, None, Timestamp(9)), Verdict::default());
    }

    #[test]
    fn what_is_missing_is_made_again_only_if_asked_for() {
        let decide = |handling| {
            decide(&json!({}), &Seen::Absent, &policy(handling, &[]), None, Timestamp(5))
        };
        assert!(decide(Handling::Repair).repair);
        assert!(!decide(Handling::Report).repair && !decide(Handling::Adopt).repair);
        assert_eq!(decide(Handling::Report).drift.unwrap().kind, DriftKind::Missing);
    }

    #[test]
    fn the_rate_adapts() {
        let after = |quiet_s: i64| check_after(Timestamp(0), Timestamp(quiet_s * 1000)).as_secs();
        assert_eq!([after(0), after(600), after(7200), after(10_000_000)], [60, 150, 1800, 3600]);
        assert_eq!(check_after(Timestamp(5000), Timestamp(0)), CHECK_MIN, "a clock that went back");
    }
}
