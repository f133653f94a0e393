//! Digests of JSON that do not depend on the order of keys, so that the same desired state has the
//! same digest on every replica and after every round through a store.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// A SHA-256, in hexadecimal digits.
pub fn digest(value: &Value) -> String {
    let mut hasher = Hasher::default();
    hasher.value(value);
    hasher.finish()
}

/// Collects the parts of a digest. Each part has its kind and length before it, so that no two
/// sequences of parts are the same bytes.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    pub fn text(&mut self, text: &str) {
        self.0.update(b"s");
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    pub fn number(&mut self, number: u64) {
        self.0.update(b"i");
        self.0.update(number.to_le_bytes());
    }

    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"n"),
            Value::Bool(boolean) => self.0.update(if *boolean { b"t" } else { b"f" }),
            // 1 and 1.0 are two texts, and may be two things to an executor.
            Value::Number(number) => {
                self.0.update(b"d");
                self.text(&number.to_string());
            }
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.0.update(b"a");
                self.number(items.len() as u64);
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(fields) => self.object(fields),
        }
    }

    pub fn object(&mut self, fields: &Map<String, Value>) {
        self.0.update(b"o");
        self.number(fields.len() as u64);
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort_unstable_by_key(|(key, _)| *key);
        for (key, value) in fields {
            self.text(key);
            self.value(value);
        }
    }

    pub fn finish(self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digest = self.0.finalize();
        let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_order_of_keys_does_not_matter() {
        let text = r#"{"b":[1,2],"a":{"y":null,"x":true}}"#;
        let one: Value = serde_json::from_str(text).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":{"x":true,"y":null},"b":[1,2]}"#).unwrap();
        assert_eq!(digest(&one), digest(&other));
        assert_eq!(digest(&one).len(), 64);
        for other in
            [json!([2, 1]), json!([[1], 2]), json!([1, "2"]), json!(["1", 2]), json!([1, 2.0])]
        {
            assert_ne!(digest(&json!([1, 2])), digest(&other), "{other}");
        }
    }
}
