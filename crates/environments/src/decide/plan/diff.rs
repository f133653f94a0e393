//! The fields in which two values differ.

use serde_json::Value;

use crate::model::drift::FieldDiff;
use crate::model::input::Input;
use crate::model::problem::join;

/// Of one resource. A person reads the first few.
const FIELDS_MAX: usize = 200;

/// Collects the differences, by the path of each field. Lists of different lengths differ as a
/// whole: which item was inserted is a guess.
pub fn diff_values(
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<FieldDiff>,
) {
    if before == after || found.len() >= FIELDS_MAX {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            for (key, value) in before {
                diff_values(&join(path, key), Some(value), after.get(key), found);
            }
            for (key, value) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
                diff_values(&join(path, key), None, Some(value), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) if before.len() == after.len() => {
            for (i, (before, after)) in before.iter().zip(after).enumerate() {
                diff_values(&format!("{path}[{i}]"), Some(before), Some(after), found);
            }
        }
        _ => found.push(FieldDiff {
            field: path.into(),
            before: before.cloned(),
            after: after.cloned(),
            deferred: None,
        }),
    }
}

/// The differences of two inputs. Where an expression is deferred, it is shown instead of a value.
pub fn diff_inputs(before: &Input, after: &Input) -> Vec<FieldDiff> {
    let mut found = Vec::new();
    diff_values("", Some(&before.value), Some(&after.value), &mut found);
    for field in &mut found {
        if field.after == Some(Value::Null) {
            field.deferred = after.deferred_at(&pointer(&field.field)).map(ToOwned::to_owned);
        }
    }
    for deferred in &after.deferred {
        let known = before.deferred.iter().find(|other| other.pointer == deferred.pointer);
        let same = known.is_some_and(|known| known.source == deferred.source);
        let field = path(&deferred.pointer);
        let listed = found.iter().any(|found| found.field == field);
        if listed || (same && before.given == after.given) || found.len() >= FIELDS_MAX {
            continue;
        }
        let before = known.map(|known| Value::from(&*known.source));
        let deferred = Some(deferred.source.to_string());
        found.push(FieldDiff { field, before, after: None, deferred });
    }
    found
}

/// `/a/0/b` of `a[0].b`.
fn pointer(path: &str) -> String {
    let mut pointer = String::with_capacity(path.len() + 1);
    for part in path.split(['.', '[']) {
        pointer.push('/');
        pointer.push_str(part.strip_suffix(']').unwrap_or(part));
    }
    pointer
}

fn path(pointer: &str) -> String {
    let mut path = String::with_capacity(pointer.len());
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            path.push('[');
            path.push_str(&part);
            path.push(']');
        } else {
            path = join(&path, &part);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::input::Deferred;
    use serde_json::json;

    fn shown(found: &[FieldDiff]) -> Vec<String> {
        let text = |value: &Option<Value>| value.as_ref().map_or("-".into(), ToString::to_string);
        let shown = found.iter().map(|field| {
            let after = field.deferred.clone().unwrap_or_else(|| text(&field.after));
            format!("{}: {} -> {after}", field.field, text(&field.before))
        });
        shown.collect()
    }

    #[test]
    fn fields_are_named_by_their_paths() {
        let mut found = Vec::new();
        let before = json!({"a": 1, "b": [1, {"c": 2}], "d": [1], "same": {"x": 1}, "gone": true});
        let after = json!({"a": 1, "b": [1, {"c": 3}], "d": [1, 2], "same": {"x": 1}, "new": null});
        diff_values("", Some(&before), Some(&after), &mut found);
        assert_eq!(
            shown(&found),
            ["b[1].c: 2 -> 3", "d: [1] -> [1,2]", "gone: true -> -", "new: - -> null"]
        );
    }

    #[test]
    fn what_is_not_known_yet_is_shown_as_its_expression() {
        let deferred =
            |source: &str| vec![Deferred { pointer: "/ports/0".into(), source: source.into() }];
        let input = |value: Value, deferred| Input { value, deferred, ..Input::default() };
        let plain = input(json!({"ports": [80]}), Vec::new());
        let by_db = input(json!({"ports": [null]}), deferred("{{ db.outputs.port }}"));
        let by_web = input(json!({"ports": [null]}), deferred("{{ web.outputs.port }}"));
        assert_eq!(shown(&diff_inputs(&plain, &by_db)), ["ports[0]: 80 -> {{ db.outputs.port }}"]);
        assert_eq!(
            shown(&diff_inputs(&by_db, &by_web)),
            ["ports[0]: \"{{ db.outputs.port }}\" -> {{ web.outputs.port }}"]
        );
        assert_eq!(shown(&diff_inputs(&by_db, &by_db)), Vec::<String>::new());
        assert_eq!(shown(&diff_inputs(&by_db, &plain)), ["ports[0]: null -> 80"]);
    }
}
