//! Whether two JSON bodies have one shape: the same keys, the same types, and the same values where
//! these do not depend on the server, the time or what was measured.

use serde_json::{Map, Value};

/// Where the bodies differ, as `path: what was, what is`.
pub fn differences(was: &Value, is: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", was, is, &mut found);
    found
}

fn compare(path: &str, was: &Value, is: &Value, found: &mut Vec<String>) {
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            let (was, is) = (timeless(was), timeless(is));
            for key in was.keys().filter(|key| !is.contains_key(*key)) {
                found.push(format!("{path}.{key}: missing"));
            }
            for (key, value) in &is {
                match was.get(key) {
                    Some(other) => compare(&format!("{path}.{key}"), other, value, found),
                    None => found.push(format!("{path}.{key}: new, {value}")),
                }
            }
        }
        (Value::Array(was), Value::Array(is)) => {
            if was.len() != is.len() {
                found.push(format!("{path}: {} items, {} items", was.len(), is.len()));
            }
            for (i, (was, is)) in by_name(was).into_iter().zip(by_name(is)).enumerate() {
                compare(&format!("{path}[{i}]"), was, is, found);
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let measured = path.contains(".recommendations");
            if a.is_f64() != b.is_f64() || (!measured && a != b) {
                found.push(format!("{path}: {a}, {b}"));
            }
        }
        (Value::String(a), Value::String(b)) => {
            if a != b && ![is_time, is_uuid, is_digest].iter().any(|is| is(a) && is(b)) {
                found.push(format!("{path}: {a:?}, {b:?}"));
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: {a}, {b}")),
    }
}

/// Experiments are listed in any order.
fn by_name(items: &[Value]) -> Vec<&Value> {
    let mut items: Vec<&Value> = items.iter().collect();
    items.sort_by_key(|item| item["experiment_name"].as_str());
    items
}

/// With numbers instead of times as keys.
fn timeless(object: &Map<String, Value>) -> Map<String, Value> {
    let times = object.keys().filter(|key| is_time(key)).count();
    let mut numbers = 0..times;
    let mut key = |key: &String| {
        if is_time(key) { format!("time {}", numbers.next().unwrap()) } else { key.clone() }
    };
    object.iter().map(|(name, value)| (key(name), value.clone())).collect()
}

/// `2026-11-15T20:35:34.000Z`.
fn is_time(text: &str) -> bool {
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    parsed.is_ok() && text.len() == 24 && text.ends_with('Z')
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12]
}

/// The id of an experiment.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn types_and_values_count_but_ids_times_and_measurements_do_not() {
    use serde_json::json;
    let was = json!({ "job_id": "3d28db67-e422-4ecf-b703-6e7941d88a48", "n": 1,
        "recommendations": { "2026-11-15T20:35:34.000Z": { "amount": 1.5 } } });
    let is = json!({ "n": 1, "job_id": "4d28db67-e422-4ecf-b703-6e7941d88a48",
        "recommendations": { "2026-11-16T20:35:34.000Z": { "amount": 2.0 } } });
    assert_eq!(differences(&was, &is), Vec::<String>::new());
    let one = |was: Value, is: Value| differences(&was, &is).len();
    assert_eq!(one(json!({ "a": 1 }), json!({ "a": 1.0 })), 1);
    assert_eq!(one(json!({ "a": 1 }), json!({ "a": 2 })), 1);
    assert_eq!(one(json!({ "a": 1 }), json!({})), 1);
    assert_eq!(one(json!({}), json!({ "a": 1 })), 1);
    assert_eq!(one(json!(["2026-11-15T20:35:34.000Z"]), json!(["2026-11-15T20:35:34Z"])), 1);
}
