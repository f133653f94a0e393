//! Time series of an instance, and selectors of them.

use std::collections::BTreeMap;

/// One series; its name is in the label `__name__`.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    /// Milliseconds since 1970, and the value.
    pub values: Vec<(i64, f64)>,
}

/// Selects series. Without metrics it selects none; without a label it is refused, since it would
/// select those of all instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    pub metrics: Vec<String>,
    /// Labels that must have exactly this value.
    pub labels: Vec<(String, String)>,
    /// Labels whose whole value must not match this regular expression, which no caller supplies.
    pub without: Vec<(String, String)>,
}

/// Escapes a string between double quotes, in PromQL as in the text format.
pub fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Whether a text is a valid name of a metric (with colons) or of a label (without).
pub fn is_name(text: &str, colon: bool) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || (colon && c == ':');
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}
