//! Request bodies: parsed leniently where clients rely on it; otherwise the error names the field.

use kernel::Result;
use serde_json::{Map, Value};

use crate::model::error_code::ErrorCode;
use crate::model::kind::Field;

pub const NAME_PATTERN: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";

/// Parses a JSON object.
pub fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>> {
    let invalid = |why: &str| ErrorCode::Malformed.error(format!("invalid request format: {why}"));
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(invalid("EOF"));
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(invalid("the body must be a JSON object")),
        Err(error) if error.is_eof() => Err(invalid("unexpected EOF")),
        Err(error) => Err(invalid(&error.to_string())),
    }
}

/// The fields of a body. Null counts as absent, unknown fields are ignored.
pub struct Payload(pub Map<String, Value>);

impl Payload {
    fn read<'b, T>(
        &'b self,
        name: &str,
        what: &str,
        parse: impl Fn(&'b Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let why = || format!("invalid request format: {name} must be {what}");
        parse(value).map(Some).ok_or_else(|| ErrorCode::Malformed.error(why()))
    }

    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        self.read(name, "a string", Value::as_str)
    }

    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        self.read(name, "a whole number", Value::as_i64)
    }
}

pub fn check_length(field: &str, text: &str, min: usize, max: usize) -> Result<()> {
    let length = text.chars().count();
    if length > max {
        let why = format!("{field} is not valid, maximum length {max} is required");
        return Err(ErrorCode::TooLong.error(why));
    }
    if length < min {
        let why = format!("{field} is not valid, minimum length {min} is required");
        return Err(ErrorCode::TooShort.error(why));
    }
    Ok(())
}

/// Lower-case letters, digits and `-`; begins with a letter, does not end with `-`.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Checks the value of a kind's own field.
pub fn check_field(name: &str, field: &Field, value: &Value) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    if !field.field_type.fits(value) {
        let why = format!("invalid request format: {name} must be a {}", field.field_type.name());
        return Err(ErrorCode::Malformed.error(why));
    }
    if let (Some(max), Some(text)) = (field.max_length, value.as_str()) {
        check_length(name, text, 0, max)?;
    }
    if !field.values.is_empty() && !field.values.contains(value) {
        let all: Vec<String> = field.values.iter().map(Value::to_string).collect();
        let why = format!("Field validation failed: {name} must be one of {}", all.join(", "));
        return Err(ErrorCode::Field.error(why));
    }
    Ok(())
}
