//! Whether two JSON bodies have one shape: the same keys in the same order, the same types, and the
//! same values where they do not depend on the server.

use serde_json::Value;

/// Where the bodies differ, as `path: what was, what is`.
pub fn differences(was: &Value, is: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", was, is, &mut found);
    found
}

/// Values that depend on who answers, when, and on what.
const OWN: &[&str] = &[
    "operation_id",
    "reason",
    "server_version",
    "base_url",
    "token_url",
    "jwks",
    "valid_issuer",
    "bootstrap_server_host",
    "admin_api_server_url",
    "domain",
];

fn compare(path: &str, was: &Value, is: &Value, found: &mut Vec<String>) {
    let leaf = path.rsplit('.').next().unwrap_or(path);
    match (was, is) {
        (Value::Object(a), Value::Object(b)) => {
            let (keys_a, keys_b): (Vec<_>, Vec<_>) = (a.keys().collect(), b.keys().collect());
            if keys_a != keys_b {
                found.push(format!("{path}: keys {}", moved(&keys_a, &keys_b)));
            }
            for (key, value) in a {
                if let Some(other) = b.get(key) {
                    compare(&format!("{path}.{key}"), value, other, found);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                found.push(format!("{path}: {} items, {} items", a.len(), b.len()));
            }
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{i}]"), x, y, found);
            }
        }
        (Value::String(a), Value::String(b)) => {
            let same = match leaf {
                own if OWN.contains(&own) => a.is_empty() == b.is_empty(),
                time if time.ends_with("_at") => {
                    let time: Result<jiff::Timestamp, _> = b.parse();
                    time.is_ok() && b.ends_with('Z') && b.contains('.')
                }
                _ => without_ids(a) == without_ids(b),
            };
            if !same {
                found.push(format!("{path}: {a:?}, {b:?}"));
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: {a}, {b}")),
    }
}

fn moved(was: &[&String], is: &[&String]) -> String {
    let missing: Vec<_> = was.iter().filter(|key| !is.contains(key)).collect();
    let more: Vec<_> = is.iter().filter(|key| !was.contains(key)).collect();
    match (missing.is_empty(), more.is_empty()) {
        (true, true) => "in another order".into(),
        _ => format!("missing {missing:?}, more {more:?}"),
    }
}

/// With every id of 20 characters replaced.
fn without_ids(text: &str) -> String {
    let of_id = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase();
    let is_id = |word: &str| word.len() == 20 && word.chars().all(of_id) && word.starts_with('d');
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| {
            let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
            if is_id(&word[..end]) { format!("ID{}", &word[end..]) } else { word.to_owned() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn order_types_and_values_count_but_ids_times_and_reasons_do_not() {
        let was = json!({"id": "dbt0rt1ksdudpgrqvla0", "n": 1, "created_at": "2026-11-15T19:54:28.5Z",
            "reason": "x", "href": "/a/dbt0rt1ksdudpgrqvla0/b"});
        let is = json!({"id": "dbt9rt1ksdudpgrqvla9", "n": 1, "created_at": "2027-01-01T00:00:00.000Z",
            "reason": "y", "href": "/a/dbt9rt1ksdudpgrqvla9/b"});
        assert_eq!(differences(&was, &is), Vec::<String>::new());
        let two = |a: Value, b: Value| differences(&a, &b).len();
        assert_eq!(two(json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1})), 1, "another order");
        assert_eq!(two(json!({"a": 1}), json!({"a": "1"})), 1, "another type");
        assert_eq!(two(json!({"a": 1}), json!({"a": 1, "b": 1})), 1, "one more");
        assert_eq!(two(json!([1, 2]), json!([1])), 1, "one less");
        assert_eq!(two(json!({"reason": "x"}), json!({"reason": ""})), 1, "no reason");
        assert_eq!(two(json!({"a_at": "2026-11-15T19:54:28.5Z"}), json!({"a_at": "soon"})), 1);
    }
}
