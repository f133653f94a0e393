//! Texts and numbers of requests within bounds, so that what is stored can be shown and indexed.

use serde_json::Value;

use super::fields::{Invalid, text};

/// Of the name of an experiment. The indexes of stores hold no longer ones.
pub const NAME_CHARS_MAX: usize = 512;
/// Of the names of workloads, containers and clusters; that of a workload has 253 in Kubernetes.
pub const TEXT_CHARS_MAX: usize = 253;

/// Refuses a text that has control characters or is too long. The text is not part of the error: it
/// may be very long.
pub(super) fn bounded(path: &str, text: &str, chars_max: usize) -> Result<(), Invalid> {
    let problem = if text.chars().count() > chars_max {
        format!("must have at most {chars_max} characters")
    } else if text.chars().any(char::is_control) {
        "must not contain control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(Invalid::new(path, problem))
}

/// A text that is not blank, has no control characters and is not too long.
pub(super) fn limited(path: &str, value: Value, chars_max: usize) -> Result<String, Invalid> {
    let text = text(path, value)?;
    if text.trim().is_empty() {
        return Err(Invalid::new(path, "must not be blank"));
    }
    bounded(path, &text, chars_max).map(|()| text)
}

/// A name of something in a cluster.
pub(super) fn name(path: &str, value: Value) -> Result<String, Invalid> {
    limited(path, value, TEXT_CHARS_MAX)
}

/// The name of an experiment.
pub(super) fn experiment_name(path: &str, value: Value) -> Result<String, Invalid> {
    limited(path, value, NAME_CHARS_MAX)
}

/// A number, also as the text of one, as the existing service accepts it.
pub(super) fn number(path: &str, value: &Value) -> Result<f64, Invalid> {
    let found = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    found.filter(|number| number.is_finite()).ok_or_else(|| Invalid::new(path, "must be a number"))
}

/// A list of at most so many items, each read with its path.
pub(super) fn list<T>(
    path: &str,
    value: Value,
    items_max: usize,
    read: impl Fn(&str, Value) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let Value::Array(items) = value else { return Err(Invalid::new(path, "must be a list")) };
    if items.len() > items_max {
        return Err(Invalid::new(path, format!("must have at most {items_max} items")));
    }
    let items = items.into_iter().enumerate();
    items.map(|(i, item)| read(&format!("{path}[{i}]"), item)).collect()
}

/// What must be there.
pub(super) fn required<T>(path: &str, found: Option<T>) -> Result<T, Invalid> {
    found.ok_or_else(|| Invalid::new(path, "is required"))
}
