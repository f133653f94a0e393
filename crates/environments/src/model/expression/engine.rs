//! The engine: minijinja with little in it. An expression ends after a bounded number of
//! instructions, none of which makes much of little: the filters that could (`replace`, `join`) have
//! a limit, and those that are not needed are not there.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value, filters, tests};
use serde_json::{Map, Value as Json};

use super::Scope;
use super::scan::{Access, scan};
use super::split::Fault;

/// Instructions of one evaluation. An expression of the permitted length has a few hundred.
const FUEL: u64 = 10_000;
/// Of one value, in bytes of text.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The filters. Each is bounded by its input, or by [`VALUE_BYTES_MAX`].
pub const FILTERS: [&str; 26] = [
    "abs", "bool", "default", "first", "float", "int", "items", "join", "last", "length", "list",
    "lower", "map", "max", "min", "replace", "reverse", "round", "sort", "split", "string",
    "times", "tojson", "trim", "unique", "upper",
];
/// The tests, as in `x is defined`.
pub const TESTS: [&str; 11] = [
    "boolean",
    "defined",
    "endingwith",
    "integer",
    "mapping",
    "none",
    "number",
    "sequence",
    "startingwith",
    "string",
    "undefined",
];

static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::empty();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    engine.add_filter("abs", filters::abs);
    engine.add_filter("bool", filters::bool);
    engine.add_filter("default", filters::default);
    engine.add_filter("first", filters::first);
    engine.add_filter("float", filters::float);
    engine.add_filter("int", filters::int);
    engine.add_filter("items", filters::items);
    engine.add_filter("join", join);
    engine.add_filter("last", filters::last);
    engine.add_filter("length", filters::length);
    engine.add_filter("list", filters::list);
    engine.add_filter("lower", filters::lower);
    engine.add_filter("map", filters::map);
    engine.add_filter("max", filters::max);
    engine.add_filter("min", filters::min);
    engine.add_filter("replace", replace);
    engine.add_filter("reverse", filters::reverse);
    engine.add_filter("round", filters::round);
    engine.add_filter("sort", filters::sort);
    engine.add_filter("split", filters::split);
    engine.add_filter("string", filters::string);
    engine.add_filter("times", times);
    engine.add_filter("tojson", tojson);
    engine.add_filter("trim", filters::trim);
    engine.add_filter("unique", filters::unique);
    engine.add_filter("upper", filters::upper);
    engine.add_test("boolean", tests::is_boolean);
    engine.add_test("defined", tests::is_defined);
    engine.add_test("endingwith", tests::is_endingwith);
    engine.add_test("integer", tests::is_integer);
    engine.add_test("mapping", tests::is_mapping);
    engine.add_test("none", tests::is_none);
    engine.add_test("number", tests::is_number);
    engine.add_test("sequence", tests::is_sequence);
    engine.add_test("startingwith", tests::is_startingwith);
    engine.add_test("string", tests::is_string);
    engine.add_test("undefined", tests::is_undefined);
    engine
});

/// A compiled expression.
#[derive(Debug)]
pub struct Code(minijinja::Expression<'static, 'static>);

/// Compiles an expression, and says what it uses.
pub fn compile(source: &str) -> Result<(Code, Vec<Access>), Fault> {
    let expression = ENGINE.compile_expression_owned(source.to_owned()).map_err(|error| {
        let wrong = format!("`{source}` is not an expression: {}", message(&error));
        (wrong, "write as in `{{ param.name|default(\"x\") }}`".to_owned())
    })?;
    let mut accesses = scan(source)?;
    // The scan sees all that the engine sees; were it ever not so, an edge must not be lost.
    let mut roots: Vec<String> = expression.undeclared_variables(false).into_iter().collect();
    roots.retain(|root| !accesses.iter().any(|access| access.root == *root));
    roots.sort_unstable();
    accesses.extend(roots.into_iter().map(|root| Access { root, path: Vec::new() }));
    Ok((Code(expression), accesses))
}

impl Code {
    pub fn evaluate(&self, scope: &Scope) -> Result<Value, String> {
        self.0.eval(Value::from_object(scope.clone())).map_err(|error| message(&error))
    }
}

fn message(error: &Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => "it takes too many steps".into(),
        kind => error.detail().map_or_else(|| kind.to_string(), ToOwned::to_owned),
    }
}

fn too_large() -> Error {
    let detail = format!("the text has more than {VALUE_BYTES_MAX} bytes");
    Error::new(ErrorKind::InvalidOperation, detail)
}

fn replace(text: Cow<'_, str>, from: Cow<'_, str>, to: Cow<'_, str>) -> Result<String, Error> {
    let hits = text.matches(from.as_ref()).count();
    let grown = hits.saturating_mul(to.len()).saturating_add(text.len());
    if grown > VALUE_BYTES_MAX { Err(too_large()) } else { Ok(text.replace(from.as_ref(), &to)) }
}

fn join(items: Value, separator: Option<Cow<'_, str>>) -> Result<String, Error> {
    let mut text = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        if i > 0 {
            text.push_str(separator.as_deref().unwrap_or(""));
        }
        append(&item, &mut text).map_err(|why| Error::new(ErrorKind::InvalidOperation, why))?;
    }
    Ok(text)
}

/// Multiplies numbers. The operator would also repeat texts, without a limit.
fn times(left: Value, by: Rest<Value>) -> Result<Value, Error> {
    let unfit = |why: &str| Error::new(ErrorKind::InvalidOperation, why.to_owned());
    let [right] = by.as_slice() else { return Err(unfit("`times` takes one number")) };
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        let product = left.checked_mul(right).ok_or_else(|| unfit("the product is too large"))?;
        return Ok(Value::from(product));
    }
    match (f64::try_from(left), f64::try_from(right.clone())) {
        (Ok(left), Ok(right)) => Ok(Value::from(left * right)),
        _ => Err(unfit("`times` multiplies numbers")),
    }
}

fn tojson(value: Value) -> Result<String, Error> {
    let json = to_json(&value).map_err(|why| Error::new(ErrorKind::InvalidOperation, why))?;
    Ok(json.to_string())
}

/// Appends a value as text. Lists and objects have none: `tojson` and `join` say which is meant.
pub fn append(value: &Value, text: &mut String) -> Result<(), String> {
    match value.kind() {
        ValueKind::String => text.push_str(value.as_str().unwrap_or_default()),
        ValueKind::Bool | ValueKind::Number => write!(text, "{value}").expect("a text takes all"),
        ValueKind::Undefined => return Err("a value is undefined".into()),
        kind => {
            return Err(format!(
                "a value of type {kind} is not a text; use `|join(\",\")` or `|tojson`"
            ));
        }
    }
    if text.len() > VALUE_BYTES_MAX { Err(message(&too_large())) } else { Ok(()) }
}

pub fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(boolean) => Value::from(*boolean),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::from(Arc::<str>::from(text.as_str())),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(fields) => Value::from_pairs(
            fields.iter().map(|(key, value)| (Value::from(key.as_str()), from_json(value))),
        ),
    }
}

pub fn to_json(value: &Value) -> Result<Json, String> {
    let mut left = VALUE_BYTES_MAX;
    convert(value, &mut left, 0)
}

const DEPTH_MAX: usize = 32;

/// `left` counts what may still be added: a value that is used often is written often.
fn convert(value: &Value, left: &mut usize, depth: usize) -> Result<Json, String> {
    let text = value.as_str().unwrap_or_default();
    *left = left.checked_sub(8 + text.len()).ok_or_else(|| message(&too_large()))?;
    if depth > DEPTH_MAX {
        return Err(format!("the value is nested deeper than {DEPTH_MAX}"));
    }
    Ok(match value.kind() {
        ValueKind::None => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::String => Json::String(text.to_owned()),
        ValueKind::Number => number(value)?,
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter().map_err(|error| message(&error))?;
            Json::Array(
                items.map(|item| convert(&item, left, depth + 1)).collect::<Result<_, _>>()?,
            )
        }
        ValueKind::Map => {
            let mut fields = Map::new();
            for key in value.try_iter().map_err(|error| message(&error))? {
                let field = value.get_item(&key).map_err(|error| message(&error))?;
                let key = key.as_str().ok_or("the keys of an object must be texts")?.to_owned();
                *left = left.checked_sub(key.len()).ok_or_else(|| message(&too_large()))?;
                fields.insert(key, convert(&field, left, depth + 1)?);
            }
            Json::Object(fields)
        }
        ValueKind::Undefined => return Err("the value is undefined".into()),
        kind => return Err(format!("a value of type {kind} has no JSON")),
    })
}

fn number(value: &Value) -> Result<Json, String> {
    if value.is_integer() {
        let unsigned = || u64::try_from(value.clone()).ok().map(Json::from);
        return value
            .as_i64()
            .map(Json::from)
            .or_else(unsigned)
            .ok_or("the number is too large".into());
    }
    let float = f64::try_from(value.clone()).map_err(|error| message(&error))?;
    serde_json::Number::from_f64(float).map(Json::Number).ok_or("the result is not a number".into())
}
