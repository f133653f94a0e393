//! JSON in Go's format and the hashes that the existing operator computes from it. Equal hashes let
//! running Jobs survive a change of operators.

use std::fmt::Write as _;

use md5::{Digest as _, Md5};
use serde_json::{Number, Value};
use sha2::Sha256;

pub type Digest = [u8; 16];

/// Formats a value as Go's `json.Marshal` does.
pub fn go_compatible_json(value: &Value) -> String {
    let mut json = String::new();
    write(&mut json, value);
    json
}

fn write(json: &mut String, value: &Value) {
    match value {
        Value::Null => json.push_str("null"),
        Value::Bool(true) => json.push_str("true"),
        Value::Bool(false) => json.push_str("false"),
        Value::Number(number) => write_number(json, number),
        Value::String(text) => write_text(json, text),
        Value::Array(items) => {
            json.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    json.push(',');
                }
                write(json, item);
            }
            json.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| name.as_bytes());
            json.push('{');
            for (i, (name, value)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    json.push(',');
                }
                write_text(json, name);
                json.push(':');
                write(json, value);
            }
            json.push('}');
        }
    }
}

/// Integers of 64 bits keep their digits; all other numbers are floats.
fn write_number(json: &mut String, number: &Number) {
    if let Some(whole) = number.as_i64() {
        let _ = write!(json, "{whole}");
        return;
    }
    let float = number.as_f64().unwrap_or_default();
    let size = float.abs();
    // `-0.0` reaches Go as `-0`, which it parses as an integer.
    let _ = if size == 0.0 {
        write!(json, "0")
    } else if (1e-6..1e21).contains(&size) {
        write!(json, "{float}")
    } else {
        let text = format!("{float:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                write!(json, "{digits}e+{exponent}")
            }
            _ => write!(json, "{text}"),
        }
    };
}

fn write_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}

pub fn md5(bytes: &[u8]) -> Digest {
    Md5::digest(bytes).into()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn md5_hex(bytes: &[u8]) -> String {
    hex(&md5(bytes))
}

/// The hash of a stream and a request: both hashes, each encoded in hexadecimal again.
pub fn combined(stream: &str, request: &str) -> String {
    format!("{}:{}", hex(stream.as_bytes()), hex(request.as_bytes()))
}

/// The checksum of v1beta1: the first characters of a SHA-256 in base 64, in lower case.
pub fn checksum(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sum = Sha256::digest(bytes);
    let bits = sum.iter().take(6).fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let letter = |i: u32| LETTERS[(bits >> (42 - 6 * i) & 63) as usize];
    (0..7).map(|i| char::from(letter(i)).to_ascii_lowercase()).collect()
}

/// A digest that ignores changes of the existing operator, which drops `apiGroup` from references
/// and sets `suspended` to false in a stream's spec after it created the Job.
pub fn canonical_digest(spec: &Value, without: &[String]) -> Digest {
    let mut spec = spec.clone();
    if let Value::Object(fields) = &mut spec {
        fields.retain(|name, _| !without.contains(name));
        if fields.contains_key("suspended") {
            fields.insert("suspended".into(), Value::Bool(false));
        }
        if let Some(Value::Object(execution)) = fields.get_mut("execution") {
            execution.insert("suspended".into(), Value::Bool(false));
        }
        plain_references(&mut spec);
    }
    md5(go_compatible_json(&spec).as_bytes())
}

fn plain_references(spec: &mut Value) {
    const REFERENCES: [&str; 6] = [
        "/jobTemplateRef",
        "/backfillJobTemplateRef",
        "/execution/backfillJobTemplateRef",
        "/execution/streamingBackend/changeCapture/jobTemplateRef",
        "/execution/streamingBackend/changeCapture/backfillJobTemplateRef",
        "/execution/streamingBackend/batch/jobTemplateRef",
    ];
    for path in REFERENCES {
        if let Some(Value::Object(reference)) = spec.pointer_mut(path) {
            reference.shift_remove("apiGroup");
        }
    }
}
