//! Texts with expressions: `{{ param.region }}`, `{{ db.outputs.host }}:5432`. A text that is one
//! expression and nothing else keeps the type of its value.
//!
//! Only expressions: no statements, no loops, no functions, and of the filters those whose cost is
//! bounded by their input. An expression is compiled once per template, with all that can be
//! known of it: which names it uses, and which of them are outputs of other resources.

mod engine;
mod scan;
mod split;

use std::sync::Arc;

use minijinja::value::Object;
use serde_json::Value;

use super::problem::{Problems, suggestion};
pub use scan::{Access, Segment};

/// The names that are no resources.
pub const RESERVED: [&str; 4] = ["param", "env", "self", "count"];

/// A text with expressions, compiled.
#[derive(Debug)]
pub struct Expression {
    source: String,
    pieces: Vec<Piece>,
    /// Every use of a name, in the order of the text.
    pub accesses: Vec<Access>,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Code(engine::Code),
}

impl Expression {
    /// Compiles a text. None if it has no expression, or a wrong one.
    pub fn parse(path: &str, text: &str, problems: &mut Problems) -> Option<Expression> {
        if !text.contains("{{") && !text.contains("{%") {
            return None;
        }
        let pieces = match split::split(text) {
            Ok(pieces) => pieces,
            Err((wrong, right)) => {
                problems.add(path, wrong, right);
                return None;
            }
        };
        let mut expression =
            Expression { source: text.into(), pieces: Vec::new(), accesses: Vec::new() };
        for piece in pieces {
            match piece {
                split::Piece::Text(text) => expression.pieces.push(Piece::Text(text)),
                split::Piece::Code(code) => match engine::compile(&code) {
                    Ok((code, found)) => {
                        expression.pieces.push(Piece::Code(code));
                        expression.accesses.extend(found);
                    }
                    Err((wrong, right)) => {
                        problems.add(path, wrong, right);
                        return None;
                    }
                },
            }
        }
        let has_code = expression.pieces.iter().any(|piece| matches!(piece, Piece::Code(_)));
        has_code.then_some(expression)
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The names of resources and groups that it uses.
    pub fn resources(&self) -> impl Iterator<Item = &Access> {
        self.accesses.iter().filter(|access| !RESERVED.contains(&access.root.as_str()))
    }

    /// Reports fields of `param`, `env`, `self` and `count` that do not exist.
    pub fn check(&self, path: &str, known: &Known<'_>, problems: &mut Problems) {
        for access in &self.accesses {
            let fields: &[&str] = match access.root.as_str() {
                "param" => known.parameters,
                "env" => &ENV_FIELDS,
                "self" => &SELF_FIELDS,
                "count" if !known.counted => {
                    let right = "give the resource a `count`";
                    problems.add(path, "`count` is used, but the resource has none", right);
                    continue;
                }
                "count" => &COUNT_FIELDS,
                _ => continue,
            };
            if let Some(Segment::Field(field)) = access.path.first()
                && !fields.contains(&field.as_str())
            {
                let wrong = format!("`{}.{field}` does not exist", access.root);
                problems.add(path, wrong, suggestion(field, fields.iter().copied()));
            }
        }
    }

    /// The value. The error says what failed, for people.
    pub fn evaluate(&self, scope: &Scope) -> Result<Value, String> {
        if let [Piece::Code(code)] = self.pieces.as_slice() {
            return engine::to_json(&code.evaluate(scope)?);
        }
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Code(code) => engine::append(&code.evaluate(scope)?, &mut text)?,
            }
        }
        Ok(Value::String(text))
    }
}

/// The fields of `env`.
pub const ENV_FIELDS: [&str; 4] = ["name", "id", "org", "tags"];
/// The fields of `self`.
pub const SELF_FIELDS: [&str; 2] = ["name", "address"];
/// The fields of `count`.
pub const COUNT_FIELDS: [&str; 2] = ["index", "total"];

/// What an expression is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub parameters: &'a [&'a str],
    pub counted: bool,
}

/// The values of the names. Cheap to clone: one of many resources differs in a few fields.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    param: Arc<minijinja::Value>,
    env: Arc<minijinja::Value>,
    own: minijinja::Value,
    count: minijinja::Value,
    /// By name: an object with `outputs`, or a list of them.
    resources: Option<Arc<minijinja::Value>>,
}

impl Scope {
    pub fn new(param: &Value, env: &Value) -> Scope {
        Scope {
            param: Arc::new(engine::from_json(param)),
            env: Arc::new(engine::from_json(env)),
            ..Scope::default()
        }
    }

    /// With `self`.
    #[must_use]
    pub fn of_resource(self, own: &Value) -> Scope {
        Scope { own: engine::from_json(own), ..self }
    }

    /// With `count`.
    #[must_use]
    pub fn of_count(self, count: &Value) -> Scope {
        Scope { count: engine::from_json(count), ..self }
    }

    #[must_use]
    pub fn with_resources(mut self, resources: &Value) -> Scope {
        self.resources = Some(Arc::new(engine::from_json(resources)));
        self
    }
}

impl Object for Scope {
    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<minijinja::Value> {
        let value = match key {
            "param" => (*self.param).clone(),
            "env" => (*self.env).clone(),
            "self" => self.own.clone(),
            "count" => self.count.clone(),
            name => return self.resources.as_ref()?.get_attr(name).ok(),
        };
        (!value.is_undefined()).then_some(value)
    }
}

#[cfg(test)]
mod tests;
