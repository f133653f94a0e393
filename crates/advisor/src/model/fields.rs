//! Reads a JSON object field by field, so that an error names the field that is wrong.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// A request that cannot be accepted, and the field because of which it cannot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", if field.is_empty() { String::new() } else { format!("`{field}`: ") })]
pub struct Invalid {
    /// The path of the field, such as `filter.include.namespace[1]`; empty for the whole document.
    pub field: String,
    pub problem: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl From<Invalid> for kernel::Error {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.field, invalid.problem)
    }
}

/// An object of which the known fields are taken one after another. `null` counts as absent.
pub(super) struct Fields {
    path: String,
    rest: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    pub fn new(path: &str, value: Value) -> Result<Self, Invalid> {
        match value {
            Value::Object(rest) => Ok(Self { path: path.to_owned(), rest, known: Vec::new() }),
            other => Err(Invalid::new(path, format!("expected an object, found {}", name(&other)))),
        }
    }

    /// The path of a field of this object.
    pub fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.rest.shift_remove(field).filter(|value| !value.is_null())
    }

    /// Reads a field with a function that gets the field's path.
    pub fn read<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&str, Value) -> Result<T, Invalid>,
    ) -> Result<Option<T>, Invalid> {
        self.take(field).map(|value| read(&self.path(field), value)).transpose()
    }

    /// As [`Fields::read`], of a field that must be there.
    pub fn required<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&str, Value) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        let found = self.read(field, read)?;
        found.ok_or_else(|| Invalid::new(self.path(field), "is required"))
    }

    /// Fails if a field is left that nothing has asked for.
    pub fn finish(self) -> Result<(), Invalid> {
        match self.rest.keys().next() {
            None => Ok(()),
            Some(unknown) => {
                let known = self.known.join(", ");
                let problem = format!("unknown field; the known ones are {known}");
                Err(Invalid::new(self.path(unknown), problem))
            }
        }
    }
}

/// A text. Numbers are accepted as their digits, as the existing service accepts them.
pub(super) fn text(path: &str, value: Value) -> Result<String, Invalid> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(Invalid::new(path, format!("expected a text, found {}", name(&other)))),
    }
}

pub(super) fn boolean(path: &str, value: Value) -> Result<bool, Invalid> {
    let problem = || Invalid::new(path, format!("expected true or false, found {}", name(&value)));
    value.as_bool().ok_or_else(problem)
}

/// A whole number within a range.
pub(super) fn whole(range: RangeInclusive<u64>) -> impl Fn(&str, Value) -> Result<u64, Invalid> {
    move |path, value| {
        let number = value.as_u64().filter(|number| range.contains(number));
        let problem = || {
            let (first, last) = (range.start(), range.end());
            format!("expected a number from {first} to {last}")
        };
        number.ok_or_else(|| Invalid::new(path, problem()))
    }
}

pub(super) fn texts(path: &str, value: Value) -> Result<Vec<String>, Invalid> {
    match value {
        Value::Array(items) => {
            let items = items.into_iter().enumerate();
            items.map(|(i, item)| text(&format!("{path}[{i}]"), item)).collect()
        }
        other => {
            Err(Invalid::new(path, format!("expected a list of texts, found {}", name(&other))))
        }
    }
}

pub(super) fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
