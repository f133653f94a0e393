//! `${path}` templates: how a kind file describes a response, an agent's payload or a manifest. A
//! value that is nothing but one expression keeps its type; a key that ends in `?` is omitted when
//! its value is empty.

use std::borrow::Cow;
use std::fmt::Write as _;

use kernel::Timestamp;
use serde_json::Value;

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Val<'a> {
    Nothing,
    Bool(bool),
    Int(i64),
    Text(Cow<'a, str>),
    Time(Timestamp),
    Json(Cow<'a, Value>),
}

impl<'a> Val<'a> {
    pub fn text(text: &'a str) -> Val<'a> {
        Val::Text(Cow::Borrowed(text))
    }

    pub fn owned(text: String) -> Val<'static> {
        Val::Text(Cow::Owned(text))
    }

    pub fn json(value: &'a Value) -> Val<'a> {
        match value {
            Value::String(text) => Val::text(text),
            Value::Bool(yes) => Val::Bool(*yes),
            Value::Null => Val::Nothing,
            Value::Number(number) if number.is_i64() => Val::Int(number.as_i64().unwrap_or(0)),
            other => Val::Json(Cow::Borrowed(other)),
        }
    }

    /// Whether a key with `?` is omitted: for nothing, "", 0, false, [] and {}.
    fn is_empty(&self) -> bool {
        match self {
            Val::Nothing => true,
            Val::Bool(yes) => !yes,
            Val::Int(number) => *number == 0,
            Val::Text(text) => text.is_empty(),
            Val::Time(_) => false,
            Val::Json(value) => match value.as_ref() {
                Value::Null => true,
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                _ => false,
            },
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Val::Nothing => out.extend_from_slice(b"null"),
            Val::Bool(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Val::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Val::Text(text) => json_into(out, text.as_ref()),
            Val::Time(at) => json_into(out, at),
            Val::Json(value) => json_into(out, value.as_ref()),
        }
    }

    /// Appends the value to a longer text.
    pub fn write_plain(&self, out: &mut String) {
        let _ = match self {
            Val::Nothing => Ok(()),
            Val::Bool(yes) => write!(out, "{yes}"),
            Val::Int(number) => write!(out, "{number}"),
            Val::Text(text) => out.write_str(text),
            Val::Time(at) => write!(out, "{at}"),
            Val::Json(value) => write!(out, "{value}"),
        };
    }
}

fn json_into<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("our own types serialise, and memory takes them");
}

fn fixed<T: serde::Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    json_into(&mut out, value);
    out
}

/// Provides the values of expressions.
pub trait Scope {
    fn get(&self, path: &Path) -> Val<'_>;
}

/// `a.b`, or `a` alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    pub root: String,
    /// Empty if there is no dot.
    pub leaf: String,
}

impl Path {
    pub fn parse(text: &str) -> Result<Path, String> {
        let is_word = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let (root, leaf) = text.split_once('.').unwrap_or((text, ""));
        if is_word(root) && (leaf.is_empty() && !text.contains('.') || is_word(leaf)) {
            return Ok(Path { root: root.into(), leaf: leaf.into() });
        }
        Err(format!("`${{{text}}}` is not an expression; one is ${{name}} or ${{group.name}}"))
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.leaf.as_str() {
            "" => f.write_str(&self.root),
            leaf => write!(f, "{}.{leaf}", self.root),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Filter {
    None,
    /// A quantity such as `50Mi` as a number of bytes.
    Bytes,
    /// Any value as text.
    Text,
}

#[derive(Debug, Clone, PartialEq)]
struct Expression {
    path: Path,
    filter: Filter,
}

impl Expression {
    fn parse(text: &str) -> Result<Expression, String> {
        let (path, filter) = match text.split_once('|') {
            None => (text, Filter::None),
            Some((path, "bytes")) => (path, Filter::Bytes),
            Some((path, "text")) => (path, Filter::Text),
            Some((_, other)) => {
                return Err(format!("`|{other}` is not a filter; there are |bytes and |text"));
            }
        };
        Ok(Expression { path: Path::parse(path.trim())?, filter })
    }

    fn value<'a>(&self, scope: &'a dyn Scope) -> Val<'a> {
        let value = scope.get(&self.path);
        match (self.filter, &value) {
            (Filter::Bytes, Val::Text(text)) => super::quantity(text).map_or(value, Val::Int),
            (Filter::Text, _) => {
                let mut text = String::new();
                value.write_plain(&mut text);
                Val::owned(text)
            }
            _ => value,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    /// Encoded JSON.
    Fixed(Vec<u8>),
    Value(Expression),
    Text(Vec<Part>),
    Object(Vec<Field>),
    List(Vec<Node>),
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    /// With quotes and colon.
    key: Vec<u8>,
    optional: bool,
    node: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Literal(String),
    Expression(Expression),
}

/// A template that was parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Node);

impl Template {
    /// Compiles a template; `known` is whether an expression exists. Errors name the location in it.
    pub fn compile(value: &Value, known: &dyn Fn(&Path) -> bool) -> Result<Template, String> {
        compile(value, known, &mut String::new()).map(Template)
    }

    pub fn render(&self, scope: &dyn Scope) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.render_into(scope, &mut out);
        out
    }

    pub fn render_into(&self, scope: &dyn Scope, out: &mut Vec<u8>) {
        render(&self.0, scope, out);
    }

    pub fn value(&self, scope: &dyn Scope) -> Value {
        serde_json::from_slice(&self.render(scope)).expect("a template renders JSON")
    }
}

fn compile(
    value: &Value,
    known: &dyn Fn(&Path) -> bool,
    location: &mut String,
) -> Result<Node, String> {
    let at = location.len();
    let mut inside = |value: &Value, step: &str| {
        location.push_str(step);
        let node = compile(value, known, location);
        location.truncate(at);
        node
    };
    Ok(match value {
        Value::String(text) => {
            return parse_text(text, known).map_err(|why| match location.trim_start_matches('.') {
                "" => why,
                location => format!("{location}: {why}"),
            });
        }
        Value::Array(items) => {
            let items = items.iter().enumerate().map(|(i, item)| inside(item, &format!("[{i}]")));
            Node::List(items.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let mut compiled = Vec::with_capacity(fields.len());
            for (name, value) in fields {
                let (plain, optional) = match name.strip_suffix('?') {
                    Some(plain) => (plain, true),
                    None => (name.as_str(), false),
                };
                let mut key = fixed(plain);
                key.push(b':');
                let node = inside(value, &format!(".{plain}"))?;
                compiled.push(Field { key, optional, node });
            }
            Node::Object(compiled)
        }
        plain => Node::Fixed(fixed(plain)),
    })
}

fn parse_text(text: &str, known: &dyn Fn(&Path) -> bool) -> Result<Node, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let end = rest[start..].find('}').ok_or("`${` has no `}`")? + start;
        let expression = Expression::parse(&rest[start + 2..end])?;
        if !known(&expression.path) {
            return Err(format!("`${{{}}}` is not known", expression.path));
        }
        if start > 0 {
            parts.push(Part::Literal(rest[..start].into()));
        }
        parts.push(Part::Expression(expression));
        rest = &rest[end + 1..];
    }
    if parts.is_empty() {
        return Ok(Node::Fixed(fixed(text)));
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.into()));
    }
    match parts.as_slice() {
        [Part::Expression(only)] => Ok(Node::Value(only.clone())),
        _ => Ok(Node::Text(parts)),
    }
}

/// Renders the node; returns whether the output counts as empty.
fn render(node: &Node, scope: &dyn Scope, out: &mut Vec<u8>) -> bool {
    match node {
        Node::Fixed(json) => {
            out.extend_from_slice(json);
            false
        }
        Node::Value(expression) => {
            let value = expression.value(scope);
            value.write(out);
            value.is_empty()
        }
        Node::Text(parts) => {
            let mut text = String::new();
            let mut empty = true;
            for part in parts {
                match part {
                    Part::Literal(literal) => text.push_str(literal),
                    Part::Expression(expression) => {
                        let value = expression.value(scope);
                        empty &= value.is_empty();
                        value.write_plain(&mut text);
                    }
                }
            }
            json_into(out, text.as_str());
            empty
        }
        Node::List(items) => {
            out.push(b'[');
            let mut first = true;
            for item in items {
                let before = out.len();
                if !first {
                    out.push(b',');
                }
                // An empty element is omitted.
                if render(item, scope, out) {
                    out.truncate(before);
                } else {
                    first = false;
                }
            }
            out.push(b']');
            first
        }
        Node::Object(fields) => {
            out.push(b'{');
            let mut first = true;
            let mut empty = true;
            for field in fields {
                let before = out.len();
                if !first {
                    out.push(b',');
                }
                out.extend_from_slice(&field.key);
                let nothing = render(&field.node, scope, out);
                if nothing && field.optional {
                    out.truncate(before);
                    continue;
                }
                empty &= nothing;
                first = false;
            }
            out.push(b'}');
            empty
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Fixed;

    impl Scope for Fixed {
        fn get(&self, path: &Path) -> Val<'_> {
            match (path.root.as_str(), path.leaf.as_str()) {
                ("name", "") => Val::text("demo \"x\""),
                ("count", "") => Val::Int(3),
                ("size", "ingress") => Val::text("50Mi"),
                _ => Val::Nothing,
            }
        }
    }

    fn rendered(template: Value) -> Value {
        Template::compile(&template, &|_| true).unwrap().value(&Fixed)
    }

    #[test]
    fn a_lone_expression_keeps_its_type_and_one_within_text_becomes_text() {
        let template = json!({"a": "${count}", "b": "n-${count}", "c": "${name}", "d": 7});
        assert_eq!(rendered(template), json!({"a": 3, "b": "n-3", "c": "demo \"x\"", "d": 7}));
        assert_eq!(rendered(json!({"b": "${size.ingress|bytes}"})), json!({"b": 52_428_800}));
        assert_eq!(rendered(json!({"b": "${count|text}"})), json!({"b": "3"}));
    }

    #[test]
    fn empty_values_are_omitted_only_for_optional_keys() {
        let template = json!({"a?": "${nope}", "b": "${nope}", "c?": {"d?": "${nope}"}});
        assert_eq!(rendered(template), json!({"b": null}));
        let template = json!({"a": [{"x?": "${nope}"}, {"y": "${count}"}], "z?": ["${nope}"]});
        assert_eq!(rendered(template), json!({"a": [{"y": 3}]}));
    }

    #[test]
    fn an_error_names_its_location() {
        let known = |path: &Path| path.root == "name";
        let why = |template: Value| Template::compile(&template, &known).unwrap_err();
        assert_eq!(why(json!({"a": {"b": ["${nam}"]}})), "a.b[0]: `${nam}` is not known");
        assert!(why(json!({"a": "${name"})).contains("has no `}`"));
        assert!(why(json!({"a": "${na me}"})).contains("is not an expression"));
        assert!(why(json!({"a": "${name|upper}"})).contains("is not a filter"));
    }
}
