//! The fleet's types: kinds, instances, clusters, quota, errors. No I/O.

pub mod account;
pub mod admin_patch;
pub mod catalogue;
pub mod catalogue_load;
pub mod cluster;
pub mod dns;
pub mod error_code;
pub mod exposition;
pub mod instance;
pub mod interned;
pub mod kind;
pub mod order;
pub mod payload;
pub mod providers;
pub mod quota;
pub mod recheck;
pub mod search;
pub mod series;
pub mod settings;
pub mod sso;
pub mod template;
pub mod template_scope;

/// Parses a quantity such as `50Mi`, `1000Gi` or `12`.
pub fn quantity(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: i64 = text[..digits].parse().ok()?;
    let factor: i64 = match &text[digits..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Parses a quantity that is a string or a number.
pub fn quantity_of(value: &serde_json::Value) -> Option<i64> {
    match value {
        serde_json::Value::String(text) => quantity(text),
        other => other.as_i64(),
    }
}

pub const UUID_PATTERN: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

/// Whether a text is a UUID in its usual form, lower case.
pub fn is_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let mut parts = text.split('-');
    lengths.iter().all(|length| {
        parts.next().is_some_and(|part| {
            part.len() == *length
                && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        })
    }) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    #[test]
    fn quantities_are_parsed_as_kubernetes_writes_them() {
        let read = |text| super::quantity(text);
        assert_eq!(read("1000Gi"), Some(1_073_741_824_000));
        assert_eq!((read("50Mi"), read("7"), read("2k")), (Some(52_428_800), Some(7), Some(2_000)));
        assert_eq!((read(""), read("x"), read("5Q"), read("99999999Ti")), (None, None, None, None));
    }
}
