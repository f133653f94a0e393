//! Takes tokens out of messages that are kept: dead letters are read by others than their senders.

use axum::body::Bytes;
use serde_json::Value;

const TOKEN: &str = "token";
const REDACTED: &str = "[redacted]";

/// The body of a message without any token in it. What is not JSON is searched as text.
pub fn without_token(body: &Bytes) -> Bytes {
    let text = String::from_utf8_lossy(body);
    let clean = match serde_json::from_str::<Value>(&text) {
        Ok(mut value) => redact(&mut value).then(|| value.to_string()),
        Err(_) => without_token_text(&text),
    };
    clean.map_or_else(|| body.clone(), Bytes::from)
}

fn is_token(name: &str) -> bool {
    name.eq_ignore_ascii_case(TOKEN)
}

/// Replaces the values of all fields with that name. Returns whether there were any.
fn redact(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            let redacted = fields.iter_mut().map(|(name, value)| {
                if is_token(name) {
                    *value = REDACTED.into();
                    return true;
                }
                redact(value)
            });
            redacted.fold(false, |any, one| any | one)
        }
        Value::Array(values) => values.iter_mut().fold(false, |any, value| any | redact(value)),
        _ => false,
    }
}

/// Replaces what comes after each string `"token"` and a colon, up to the end of that string. Of any
/// other value, everything after it goes: where it ends is not known.
fn without_token_text(text: &str) -> Option<String> {
    let (mut clean, mut rest, mut found) = (String::new(), text, false);
    while let Some(begin) = rest.find('"') {
        let end = begin + string_len(&rest[begin..]);
        let name: Option<String> = serde_json::from_str(&rest[begin..end]).ok();
        clean.push_str(&rest[..end]);
        rest = &rest[end..];
        let value = rest.trim_start().strip_prefix(':').map(str::trim_start);
        let Some(value) = value.filter(|_| name.is_some_and(|name| is_token(&name))) else {
            continue;
        };
        found = true;
        clean.push_str(&format!(": \"{REDACTED}\""));
        rest = if value.starts_with('"') { &value[string_len(value)..] } else { "" };
    }
    clean.push_str(rest);
    found.then_some(clean)
}

/// The length of the quoted string with which a text begins; of all of it if the string has no end.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_kept_whether_the_message_can_be_read_or_not() {
        for (body, clean) in [
            (r#"{"id":"1","token":"hunter2"}"#, r#"{"id":"1","token":"[redacted]"}"#),
            (r#"{"id":"1","tok\u0065n":"hunter2"}"#, r#"{"id":"1","token":"[redacted]"}"#),
            (r#"{"id":"1","token":{"a":"hunter2"}}"#, r#"{"id":"1","token":"[redacted]"}"#),
            (r#"[{"Token":"hunter2"}]"#, r#"[{"Token":"[redacted]"}]"#),
            (r#"{"command":{"token":"hunter2"}}"#, r#"{"command":{"token":"[redacted]"}}"#),
            (r#"{"id":"1"}"#, r#"{"id":"1"}"#),
            (r#"{"token" : "hunter2", nonsense"#, r#"{"token": "[redacted]", nonsense"#),
            (r#"{"token":"hun\"ter2", nonsense"#, r#"{"token": "[redacted]", nonsense"#),
            (r#"{"\u0074oken":"hunter2", nonsense"#, r#"{"\u0074oken": "[redacted]", nonsense"#),
            (r#"{"token":"hunter2"#, r#"{"token": "[redacted]""#),
            (r#"{"token": hunter2 }"#, r#"{"token": "[redacted]""#),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_token(&Bytes::from(body)), Bytes::from(clean), "{body}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_hide_no_token() {
        let body = Bytes::from_static(b"{\"id\":\"\xff\",\"token\":\"hunter2\"}");
        let clean = without_token(&body);
        assert!(!clean.windows(7).any(|bytes| bytes == b"hunter2"), "{clean:?}");
    }
}
