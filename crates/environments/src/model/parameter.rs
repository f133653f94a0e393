//! The parameters of a template: their types, defaults and constraints, and the check of values.

use std::collections::BTreeMap;

use kernel::labels;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{Fields, any, boolean, kind_of, one_of, text};
use super::label::stored_as_label;
use super::problem::{Problems, join, suggestion};

labels! {
    /// What a value must be.
    pub enum Type {
        Text = "string",
        Integer = "integer",
        Number = "number",
        Boolean = "boolean",
        List = "list",
        Map = "map",
        /// A reference to a secret, never the secret itself.
        Secret = "secret",
    }
}

stored_as_label!(Type);

/// Larger values belong into a file that the resource names.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// How a secret is named.
const SECRET_SCHEMES: [&str; 3] = ["vault:", "env:", "file:"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    #[serde(rename = "type")]
    pub kind: Type,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Null is a value: the parameter may be left out though it has no default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<Value>,
    /// Of a number its value, of a text or list its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Parameter {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Parameter> {
        let mut fields = Fields::new(path, value, problems)?;
        let kind = fields.required("type", one_of(&Type::ALL));
        let number = |path: &str, value: Value, problems: &mut Problems| {
            let found = value.as_f64();
            if found.is_none() {
                problems.add(path, format!("expected a number, found {}", kind_of(&value)), "");
            }
            found
        };
        let parameter = Parameter {
            kind: kind.unwrap_or(Type::Text),
            description: fields.read("description", text).unwrap_or_default(),
            default: fields.read("default", any),
            optional: fields.read("optional", boolean).unwrap_or_default(),
            one_of: fields.items("one_of", any),
            min: fields.read("min", number),
            max: fields.read("max", number),
        };
        fields.finish();
        kind?;
        if let (Some(min), Some(max)) = (parameter.min, parameter.max)
            && min > max
        {
            problems.add(join(path, "min"), format!("{min} is larger than max, {max}"), "");
        }
        if let Some(default) = &parameter.default {
            parameter.check(&join(path, "default"), default, problems);
        }
        Some(parameter)
    }

    /// Reports what is wrong with a value.
    pub fn check(&self, path: &str, value: &Value, problems: &mut Problems) {
        let (fits, expected) = match self.kind {
            Type::Text => (value.is_string(), "a text"),
            Type::Integer => (value.is_i64() || value.is_u64(), "a whole number"),
            Type::Number => (value.is_number(), "a number"),
            Type::Boolean => (value.is_boolean(), "true or false"),
            Type::List => (value.is_array(), "a list"),
            Type::Map => (value.is_object(), "an object"),
            Type::Secret => {
                (value.as_str().is_some_and(is_secret_reference), "a reference to a secret")
            }
        };
        if !fits {
            let right = match self.kind {
                // The value may be the secret: it is not repeated.
                Type::Secret => format!("write {} and where it is", SECRET_SCHEMES.join(", ")),
                _ => String::new(),
            };
            problems.add(path, format!("expected {expected}, found {}", kind_of(value)), right);
            return;
        }
        let (size, what) = match value {
            Value::String(text) => (text.chars().count() as f64, "length"),
            Value::Array(items) => (items.len() as f64, "length"),
            Value::Object(fields) => (fields.len() as f64, "length"),
            other => (other.as_f64().unwrap_or_default(), "value"),
        };
        if let Some(min) = self.min.filter(|min| size < *min) {
            problems.add(
                path,
                format!("its {what} is {size}"),
                format!("at least {min} is needed"),
            );
        }
        if let Some(max) = self.max.filter(|max| size > *max) {
            problems.add(
                path,
                format!("its {what} is {size}"),
                format!("at most {max} is allowed"),
            );
        }
        if !self.one_of.is_empty() && !self.one_of.contains(value) {
            let allowed: Vec<String> = self.one_of.iter().map(Value::to_string).collect();
            problems.add(
                path,
                format!("{value} is not allowed"),
                format!("write one of {}", allowed.join(", ")),
            );
        }
        if bytes_of(value) > VALUE_BYTES_MAX {
            problems.add(
                path,
                "the value is too large",
                format!("{VALUE_BYTES_MAX} bytes are allowed"),
            );
        }
    }
}

fn is_secret_reference(text: &str) -> bool {
    SECRET_SCHEMES
        .iter()
        .any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
}

/// About what it has as JSON.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| 1 + bytes_of(item)).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + 4 + bytes_of(value)).sum()
        }
        _ => 8,
    }
}

pub type Parameters = BTreeMap<String, Parameter>;

/// Checks the values that were given, and adds the defaults. `path` is where the values are.
pub fn resolve(
    parameters: &Parameters,
    given: &Map<String, Value>,
    path: &str,
    problems: &mut Problems,
) -> Map<String, Value> {
    for name in given.keys().filter(|name| !parameters.contains_key(*name)) {
        let known = parameters.keys().map(String::as_str);
        problems.add(join(path, name), "unknown parameter", suggestion(name, known));
    }
    let mut values = Map::new();
    for (name, parameter) in parameters {
        let path = join(path, name);
        let value = match given.get(name).filter(|value| !value.is_null()) {
            Some(value) => {
                parameter.check(&path, value, problems);
                value.clone()
            }
            None => parameter.default.clone().unwrap_or(Value::Null),
        };
        if value.is_null() && !parameter.optional {
            let right = format!("a value of type {} is needed", parameter.kind.label());
            problems.add(path, "has no value", right);
        }
        values.insert(name.clone(), value);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parameters(value: Value) -> Parameters {
        let mut problems = Problems::default();
        let read = |(name, value): (&String, &Value)| {
            (name.clone(), Parameter::read(name, value.clone(), &mut problems).unwrap())
        };
        let parameters = value.as_object().unwrap().iter().map(read).collect();
        assert!(problems.is_empty(), "{problems}");
        parameters
    }

    #[test]
    fn values_are_checked_all_at_once() {
        let parameters = parameters(json!({
            "region": {"type": "string", "one_of": ["eu", "us"], "default": "eu"},
            "size": {"type": "integer", "min": 1, "max": 9},
            "zones": {"type": "list", "max": 2, "default": []},
            "token": {"type": "secret", "optional": true},
        }));
        let check = |given: Value| {
            let mut problems = Problems::default();
            let values =
                resolve(&parameters, given.as_object().unwrap(), "parameters", &mut problems);
            (Value::Object(values), problems.to_string())
        };
        assert_eq!(
            check(json!({"size": 3, "token": "vault:kv/shop#token"})).0,
            json!({"region": "eu", "size": 3, "zones": [], "token": "vault:kv/shop#token"})
        );
        let (_, wrong) = check(
            json!({"regoin": "eu", "region": "mars", "zones": [1, 2, 3], "token": "hunter2"}),
        );
        assert_eq!(
            wrong.lines().collect::<Vec<_>>(),
            [
                "parameters.regoin: unknown parameter; did you mean `region`?",
                "parameters.region: \"mars\" is not allowed; write one of \"eu\", \"us\"",
                "parameters.size: has no value; a value of type integer is needed",
                "parameters.token: expected a reference to a secret, found a text; \
                 write vault:, env:, file: and where it is",
                "parameters.zones: its length is 3; at most 2 is allowed",
            ]
        );
        assert!(check(json!({"size": 1.5})).1.contains("expected a whole number"));
        assert!(check(json!({"size": 10})).1.contains("at most 9"));
    }

    #[test]
    fn a_declaration_is_checked_too() {
        let wrong = |value: Value| {
            let mut problems = Problems::default();
            Parameter::read("p", value, &mut problems);
            problems.to_string()
        };
        assert_eq!(
            wrong(json!({"type": "int"})),
            "p.type: `int` is not known; known are: boolean, integer, list, map, number, secret, string"
        );
        assert_eq!(
            wrong(json!({"type": "integer", "default": "x"})),
            "p.default: expected a whole number, found a text"
        );
        assert!(wrong(json!({"type": "integer", "min": 2, "max": 1})).contains("larger"));
        assert!(wrong(json!({"type": "string", "defualt": 1})).contains("did you mean `default`?"));
    }
}
