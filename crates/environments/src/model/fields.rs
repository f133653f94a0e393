//! Reads an object field by field, and goes on after a mistake: a template's problems are reported
//! together, unknown fields with the name that was probably meant.

use kernel::label::Label;
use serde_json::{Map, Value};

use super::problem::{Problems, join, suggestion};

/// An object of which the known fields are taken one after another. `null` counts as absent.
pub struct Fields<'p> {
    path: String,
    rest: Map<String, Value>,
    known: Vec<&'static str>,
    pub problems: &'p mut Problems,
}

impl<'p> Fields<'p> {
    /// Anything but an object is a problem, and is read as an empty one.
    pub fn new(path: &str, value: Value, problems: &'p mut Problems) -> Option<Fields<'p>> {
        let rest = object(path, value, problems)?;
        Some(Fields { path: path.into(), rest, known: Vec::new(), problems })
    }

    pub fn path(&self, field: &str) -> String {
        join(&self.path, field)
    }

    pub fn has(&self, field: &str) -> bool {
        self.rest.get(field).is_some_and(|value| !value.is_null())
    }

    pub fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.rest.shift_remove(field).filter(|value| !value.is_null())
    }

    /// Reads a field with a function that gets its path; absent if it is, or if it is wrong.
    pub fn read<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&str, Value, &mut Problems) -> Option<T>,
    ) -> Option<T> {
        let value = self.take(field)?;
        read(&join(&self.path, field), value, self.problems)
    }

    /// As [`Fields::read`], of a field that must be there.
    pub fn required<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&str, Value, &mut Problems) -> Option<T>,
    ) -> Option<T> {
        if !self.has(field) {
            self.known.push(field);
            self.problem(field, "is missing", "");
            return None;
        }
        self.read(field, read)
    }

    /// Reads each entry of a field that is an object, in the order of the file.
    pub fn entries<T>(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(&str, &str, Value, &mut Problems) -> Option<T>,
    ) -> Vec<(String, T)> {
        let entries = self.read(field, object).unwrap_or_default();
        let path = self.path(field);
        let entries = entries.into_iter().filter_map(|(key, value)| {
            let read = read(&key, &join(&path, &key), value, self.problems)?;
            Some((key, read))
        });
        entries.collect()
    }

    /// Reads each item of a field that is a list.
    pub fn items<T>(
        &mut self,
        field: &'static str,
        read: impl FnMut(&str, Value, &mut Problems) -> Option<T>,
    ) -> Vec<T> {
        self.read(field, |path, value, problems| Some(items(path, value, problems, read)))
            .unwrap_or_default()
    }

    pub fn problem(&mut self, field: &str, wrong: impl Into<String>, right: impl Into<String>) {
        self.problems.add(join(&self.path, field), wrong, right);
    }

    /// Reports the fields that nothing has asked for.
    pub fn finish(self) {
        for field in self.rest.keys() {
            let known = self.known.iter().copied();
            self.problems.add(join(&self.path, field), "unknown field", suggestion(field, known));
        }
    }
}

fn mismatch<T>(path: &str, value: &Value, expected: &str, problems: &mut Problems) -> Option<T> {
    problems.add(path, format!("expected {expected}, found {}", kind_of(value)), "");
    None
}

pub fn object(path: &str, value: Value, problems: &mut Problems) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        other => mismatch(path, &other, "an object", problems),
    }
}

pub fn items<T>(
    path: &str,
    value: Value,
    problems: &mut Problems,
    mut read: impl FnMut(&str, Value, &mut Problems) -> Option<T>,
) -> Vec<T> {
    match value {
        Value::Array(items) => {
            let items = items.into_iter().enumerate();
            items.filter_map(|(i, item)| read(&format!("{path}[{i}]"), item, problems)).collect()
        }
        other => mismatch(path, &other, "a list", problems).unwrap_or_default(),
    }
}

/// Any value, as it is.
pub fn any(_: &str, value: Value, _: &mut Problems) -> Option<Value> {
    Some(value)
}

/// A text. Numbers are accepted as their digits: a version may look like one.
pub fn text(path: &str, value: Value, problems: &mut Problems) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        other => mismatch(path, &other, "a text", problems),
    }
}

pub fn boolean(path: &str, value: Value, problems: &mut Problems) -> Option<bool> {
    match value {
        Value::Bool(boolean) => Some(boolean),
        other => mismatch(path, &other, "true or false", problems),
    }
}

/// A whole number within a range.
pub fn whole(
    range: std::ops::RangeInclusive<u32>,
) -> impl Fn(&str, Value, &mut Problems) -> Option<u32> {
    move |path, value, problems| {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let found = number.filter(|number| range.contains(number));
        if found.is_none() {
            let right = format!("write a whole number from {} to {}", range.start(), range.end());
            problems.add(path, format!("`{value}` is out of range"), right);
        }
        found
    }
}

/// One of the values of an enum, by its label.
pub fn one_of<L: Label + Copy>(
    all: &'static [L],
) -> impl Fn(&str, Value, &mut Problems) -> Option<L> {
    move |path, value, problems| {
        let label = text(path, value, problems)?;
        let found = L::parse(&label);
        if found.is_none() {
            let known = all.iter().map(Label::label);
            problems.add(path, format!("`{label}` is not known"), suggestion(&label, known));
        }
        found
    }
}

/// A number that is not negative.
pub fn amount(path: &str, value: Value, problems: &mut Problems) -> Option<f64> {
    let found = value.as_f64().filter(|number| *number >= 0.0);
    if found.is_none() {
        problems.add(path, format!("`{value}` is not an amount"), "write a number from 0 on");
    }
    found
}

/// The word for the type of a value.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
