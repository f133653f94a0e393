//! Takes tokens out of messages that are kept: dead letters are read by others than their senders.

use axum::body::Bytes;
use serde_json::Value;

const TOKEN: &str = "token";
const REDACTED: &str = "[redacted]";

/// The body of a message without the token of its envelope. What is not JSON is searched as text.
pub fn without_token(body: &Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(body) else { return body.clone() };
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(mut fields)) if fields.contains_key(TOKEN) => {
            fields.insert(TOKEN.into(), REDACTED.into());
            Value::Object(fields).to_string().into()
        }
        Ok(_) => body.clone(),
        Err(_) => without_token_text(text).map_or_else(|| body.clone(), Bytes::from),
    }
}

/// Replaces whatever comes after each `"token":` up to the end of its string.
fn without_token_text(text: &str) -> Option<String> {
    let mut parts = text.split("\"token\"");
    let mut clean = parts.next()?.to_owned();
    let mut found = false;
    for part in parts {
        found = true;
        clean.push_str("\"token\"");
        let value = part.trim_start().strip_prefix(':').map(str::trim_start);
        match value.and_then(|value| value.strip_prefix('"')) {
            Some(value) => {
                clean.push_str(&format!(": \"{REDACTED}"));
                clean.push_str(value.find('"').map_or("", |end| &value[end..]));
            }
            None => clean.push_str(part),
        }
    }
    found.then_some(clean)
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
            (r#"{"id":"1"}"#, r#"{"id":"1"}"#),
            (r#"{"token" : "hunter2", nonsense"#, r#"{"token": "[redacted]", nonsense"#),
            (r#"{"token":"hunter2"#, r#"{"token": "[redacted]"#),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_token(&Bytes::from(body)), Bytes::from(clean), "{body}");
        }
    }
}
