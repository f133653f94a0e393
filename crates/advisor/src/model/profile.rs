//! Reads profiles as they are uploaded. The existing service lists them otherwise: `slo_class` becomes
//! `sloClass`, the list of aggregation functions an object by their names, of which the last counts,
//! and versions are numbers with a point. Fields that it ignores are ignored here.

use serde_json::{Map, Value, json};

use super::declared::Declared;
use super::fields::{Fields, Invalid, name, text};

const VARIABLES_MAX: usize = 200;
const FUNCTIONS_MAX: usize = 20;
const QUERY_CHARS_MAX: usize = 10_000;
const NAME_CHARS_MAX: usize = 200;
/// In the order in which the existing service lists them; others come after.
const FUNCTIONS: [&str; 4] = ["avg", "min", "max", "sum"];

/// A metric profile.
pub fn metric(value: Value) -> Result<Declared, Invalid> {
    let mut fields = Fields::new("", value)?;
    let (name, mut document) = head(&mut fields)?;
    version(&mut fields, &mut document)?;
    document.insert("slo".into(), fields.required("slo", slo)?);
    Ok(Declared { name, document: document.into() })
}

/// A performance profile, whose name is at the top.
pub fn performance(value: Value) -> Result<Declared, Invalid> {
    let mut fields = Fields::new("", value)?;
    let name = fields.required("name", plain_name)?;
    let mut document = Map::from_iter([("name".to_owned(), Value::from(name.as_str()))]);
    version(&mut fields, &mut document)?;
    document.insert("slo".into(), fields.required("slo", slo)?);
    Ok(Declared { name, document: document.into() })
}

/// A metadata profile.
pub fn metadata(value: Value) -> Result<Declared, Invalid> {
    let mut fields = Fields::new("", value)?;
    let (name, mut document) = head(&mut fields)?;
    version(&mut fields, &mut document)?;
    keep(&mut document, "datasource", fields.read("datasource", text)?);
    document.insert("query_variables".into(), fields.required("query_variables", variables)?);
    Ok(Declared { name, document: document.into() })
}

/// What the documents of the existing service begin with, and the name.
pub(super) fn head(fields: &mut Fields) -> Result<(String, Map<String, Value>), Invalid> {
    let api_version = fields.required("apiVersion", text)?;
    let kind = fields.required("kind", text)?;
    let name = fields.required("metadata", |path, value| {
        Fields::new(path, value)?.required("name", plain_name)
    })?;
    let mut head = Map::new();
    head.insert("apiVersion".into(), api_version.into());
    head.insert("kind".into(), kind.into());
    head.insert("metadata".into(), json!({ "name": name }));
    Ok((name, head))
}

/// A name that people can read and tell from others.
pub(super) fn plain_name(path: &str, value: Value) -> Result<String, Invalid> {
    let name = text(path, value)?;
    match kernel::http::valid_name(path, &name) {
        Ok(()) if name.len() <= NAME_CHARS_MAX => Ok(name),
        Ok(()) => Err(Invalid::new(path, format!("must have at most {NAME_CHARS_MAX} characters"))),
        Err(kernel::Error::Invalid { field, message }) => Err(Invalid::new(field, message)),
        Err(other) => Err(Invalid::new(path, other.to_string())),
    }
}

pub(super) fn keep(into: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        into.insert(name.to_owned(), value.into());
    }
}

/// A number with a point.
pub(super) fn decimal(path: &str, value: Value) -> Result<f64, Invalid> {
    let number = match &value {
        Value::String(digits) => digits.trim().parse().ok(),
        other => other.as_f64(),
    };
    let problem = || format!("expected a number, found {}", name(&value));
    number.filter(|number| number.is_finite()).ok_or_else(|| Invalid::new(path, problem()))
}

fn version(fields: &mut Fields, document: &mut Map<String, Value>) -> Result<(), Invalid> {
    let version = fields.read("profile_version", decimal)?.unwrap_or(1.0);
    document.insert("profile_version".into(), version.into());
    keep(document, "k8s_type", fields.read("k8s_type", text)?);
    Ok(())
}

fn slo(path: &str, value: Value) -> Result<Value, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let mut slo = Map::new();
    let class = fields.read("slo_class", text)?;
    keep(&mut slo, "sloClass", class.or(fields.read("sloClass", text)?));
    let objective = fields.required("objective_function", objective)?;
    slo.insert("objective_function".into(), objective);
    slo.insert("direction".into(), fields.required("direction", direction)?.into());
    slo.insert("function_variables".into(), fields.required("function_variables", variables)?);
    Ok(slo.into())
}

fn objective(path: &str, value: Value) -> Result<Value, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let mut objective = Map::new();
    objective.insert("function_type".into(), fields.required("function_type", text)?.into());
    keep(&mut objective, "expression", fields.read("expression", text)?);
    Ok(objective.into())
}

fn direction(path: &str, value: Value) -> Result<String, Invalid> {
    let direction = text(path, value)?;
    if ["minimize", "maximize"].contains(&direction.as_str()) {
        return Ok(direction);
    }
    Err(Invalid::new(path, "expected minimize or maximize"))
}

pub(super) fn list(
    path: &str,
    value: Value,
    max: usize,
    read: impl Fn(&str, Value) -> Result<Value, Invalid>,
) -> Result<Vec<Value>, Invalid> {
    let Value::Array(items) = value else {
        return Err(Invalid::new(path, format!("expected a list, found {}", name(&value))));
    };
    if items.is_empty() || items.len() > max {
        let problem = format!("expected 1 to {max} items, found {}", items.len());
        return Err(Invalid::new(path, problem));
    }
    let items = items.into_iter().enumerate();
    items.map(|(i, item)| read(&format!("{path}[{i}]"), item)).collect()
}

fn variables(path: &str, value: Value) -> Result<Value, Invalid> {
    Ok(list(path, value, VARIABLES_MAX, variable)?.into())
}

fn variable(path: &str, value: Value) -> Result<Value, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let mut variable = Map::new();
    variable.insert("name".into(), fields.required("name", plain_name)?.into());
    let query = fields.read("query", query)?.filter(|query| !query.is_empty());
    let has_query = query.is_some();
    keep(&mut variable, "query", query);
    for known in ["datasource", "value_type", "kubernetes_object"] {
        keep(&mut variable, known, fields.read(known, text)?);
    }
    match fields.read("aggregation_functions", functions)? {
        Some(functions) => drop(variable.insert("aggregation_functions".into(), functions)),
        None if has_query => {}
        None => return Err(Invalid::new(fields.path("aggregation_functions"), "is required")),
    }
    Ok(variable.into())
}

fn query(path: &str, value: Value) -> Result<String, Invalid> {
    let query = text(path, value)?;
    if query.len() > QUERY_CHARS_MAX {
        let problem = format!("must have at most {QUERY_CHARS_MAX} characters");
        return Err(Invalid::new(path, problem));
    }
    Ok(query)
}

/// A list, or an object by the names of the functions.
fn functions(path: &str, value: Value) -> Result<Value, Invalid> {
    let items = match value {
        Value::Object(by_name) => Value::Array(by_name.into_iter().map(|(_, one)| one).collect()),
        other => other,
    };
    let mut found = Map::new();
    for function in list(path, items, FUNCTIONS_MAX, function)? {
        let name = function["function"].as_str().unwrap_or_default().to_owned();
        found.insert(name, function);
    }
    let known = FUNCTIONS.iter().filter_map(|name| found.shift_remove_entry(*name));
    let mut listed: Map<String, Value> = known.collect();
    listed.extend(found);
    Ok(listed.into())
}

fn function(path: &str, value: Value) -> Result<Value, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let function = fields.required("function", plain_name)?;
    let query = fields.required("query", query)?;
    Ok(json!({ "function": function, "query": query }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Value {
        json!({
            "apiVersion": "recommender.com/v1", "kind": "KruizePerformanceProfile",
            "metadata": { "name": "mine" }, "profile_version": 1,
            "slo": {
                "slo_class": "resource_usage", "direction": "minimize",
                "objective_function": { "function_type": "source" },
                "function_variables": [{ "name": "cpuRequest", "aggregation_functions": [
                    { "function": "sum", "query": "a", "versions": "<=4.8" },
                    { "function": "avg", "query": "b" },
                    { "function": "sum", "query": "c" },
                ] }],
            },
        })
    }

    #[test]
    fn a_profile_is_listed_as_by_the_existing_service_and_accepted_back() {
        let read = metric(profile()).unwrap();
        assert_eq!(read.name, "mine");
        let slo = &read.document["slo"];
        assert_eq!((&slo["sloClass"], slo.get("slo_class")), (&json!("resource_usage"), None));
        assert_eq!(read.document["profile_version"].to_string(), "1.0");
        let functions = slo["function_variables"][0]["aggregation_functions"].to_string();
        let expected =
            r#"{"avg":{"function":"avg","query":"b"},"sum":{"function":"sum","query":"c"}}"#;
        assert_eq!(functions, expected);
        assert_eq!(metric(read.document.clone()).unwrap(), read);
    }

    #[test]
    fn an_error_names_the_field() {
        let without = |path: &str, field: &str| {
            let mut changed = profile();
            changed.pointer_mut(path).unwrap().as_object_mut().unwrap().shift_remove(field);
            metric(changed).unwrap_err().to_string()
        };
        let with = |path: &str, value: Value| {
            let mut changed = profile();
            *changed.pointer_mut(path).unwrap() = value;
            metric(changed).unwrap_err().to_string()
        };
        let variable = "/slo/function_variables/0";
        let second = format!("{variable}/aggregation_functions/1");
        for (error, expected) in [
            (without("", "apiVersion"), "`apiVersion`: is required"),
            (without("", "kind"), "`kind`: is required"),
            (without("/metadata", "name"), "`metadata.name`: is required"),
            (without("", "slo"), "`slo`: is required"),
            (without("/slo", "direction"), "`slo.direction`: is required"),
            (
                without(variable, "aggregation_functions"),
                "`slo.function_variables[0].aggregation_functions`: is required",
            ),
            (
                without(&second, "query"),
                "`slo.function_variables[0].aggregation_functions[1].query`: is required",
            ),
            (with("/metadata/name", json!(" ")), "`metadata.name`: must not be empty"),
            (with("/slo/direction", json!("up")), "`slo.direction`: expected minimize or maximize"),
            (with("/profile_version", json!("x")), "`profile_version`: expected a number"),
            (
                with("/slo/function_variables", json!([])),
                "`slo.function_variables`: expected 1 to 200 items, found 0",
            ),
            (with("/slo", json!([])), "`slo`: expected an object, found a list"),
        ] {
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(performance(json!({})).unwrap_err().to_string(), "`name`: is required");
    }
}
