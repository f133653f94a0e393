//! Time series of an instance, and which of them are asked for.

use std::collections::BTreeMap;

/// One series, its name in the label `__name__`.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    /// When, in milliseconds since 1970, and what.
    pub values: Vec<(i64, f64)>,
}

/// Which series. Without metrics, none; without a label, it is refused: that would be everyone's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// Their names.
    pub metrics: Vec<String>,
    /// Labels that must have exactly this value.
    pub labels: Vec<(String, String)>,
    /// Labels whose whole value must not match this regular expression, which is ours.
    pub without: Vec<(String, String)>,
}

/// Between double quotes, in PromQL as in the text format.
pub fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Whether a text can name a metric (with colons) or a label (without).
pub fn is_name(text: &str, colon: bool) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || (colon && c == ':');
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}
