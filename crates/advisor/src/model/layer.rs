//! Reads layers: what a container runs besides its program, such as a Java virtual machine, how it is
//! recognised, and what can be tuned there.

use serde_json::{Map, Value};

use super::declared::Declared;
use super::fields::{Fields, Invalid, text, texts};
use super::profile::{decimal, head, keep, list, plain_name};

const TUNABLES_MAX: usize = 200;
const QUERIES_MAX: usize = 50;

pub fn read(value: Value) -> Result<Declared, Invalid> {
    let mut fields = Fields::new("", value)?;
    let (_, mut document) = head(&mut fields)?;
    let name = fields.required("layer_name", plain_name)?;
    document.insert("layer_name".into(), name.as_str().into());
    keep(&mut document, "details", fields.read("details", text)?);
    document.insert("layer_presence".into(), fields.required("layer_presence", presence)?);
    let tunables =
        fields.required("tunables", |path, value| list(path, value, TUNABLES_MAX, tunable))?;
    document.insert("tunables".into(), tunables.into());
    Ok(Declared { name, document: document.into() })
}

/// How a layer is recognised: always, by queries, or by labels.
fn presence(path: &str, value: Value) -> Result<Value, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let always = fields.read("presence", text)?;
    let queries = fields.read("queries", |path, value| list(path, value, QUERIES_MAX, query))?;
    let labels = fields.read("label", |path, value| list(path, value, QUERIES_MAX, label))?;
    if [always.is_some(), queries.is_some(), labels.is_some()].iter().all(|given| !given) {
        return Err(Invalid::new(path, "expected one of presence, queries and label"));
    }
    let mut presence = Map::new();
    keep(&mut presence, "presence", always);
    keep(&mut presence, "queries", queries);
    keep(&mut presence, "label", labels);
    Ok(presence.into())
}

fn query(path: &str, value: Value) -> Result<Value, Invalid> {
    texts_of(path, value, &["datasource", "query"], &["key"])
}

fn label(path: &str, value: Value) -> Result<Value, Invalid> {
    texts_of(path, value, &["name", "value"], &[])
}

fn texts_of(
    path: &str,
    value: Value,
    required: &[&'static str],
    optional: &[&'static str],
) -> Result<Value, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let mut read = Map::new();
    for name in required {
        read.insert((*name).to_owned(), fields.required(name, text)?.into());
    }
    for name in optional {
        keep(&mut read, name, fields.read(name, text)?);
    }
    Ok(read.into())
}

/// Something that can be tuned. Its bounds are texts, its step is a number.
fn tunable(path: &str, value: Value) -> Result<Value, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let mut tunable = Map::new();
    tunable.insert("name".into(), fields.required("name", plain_name)?.into());
    keep(&mut tunable, "description", fields.read("description", text)?);
    tunable.insert("value_type".into(), fields.required("value_type", text)?.into());
    for bound in ["upper_bound", "lower_bound"] {
        keep(&mut tunable, bound, fields.read(bound, text)?);
    }
    keep(&mut tunable, "step", fields.read("step", decimal)?);
    keep(&mut tunable, "units", fields.read("units", text)?);
    keep(&mut tunable, "choices", fields.read("choices", texts)?);
    Ok(tunable.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_layer_is_recognised_somehow() {
        let with = |presence: Value| {
            read(json!({
                "apiVersion": "v1", "kind": "KruizeLayer", "metadata": { "name": "x" },
                "layer_name": "x", "layer_presence": presence,
                "tunables": [{ "name": "t", "value_type": "double", "lower_bound": 5, "step": 1 }],
            }))
        };
        for presence in [
            json!({ "presence": "always" }),
            json!({ "queries": [{ "datasource": "prometheus", "query": "up", "key": "pod" }] }),
            json!({ "label": [{ "name": "app", "value": "y" }] }),
        ] {
            let layer = with(presence.clone()).unwrap();
            assert_eq!(layer.document["layer_presence"], presence);
            assert_eq!(layer.document["tunables"][0]["lower_bound"], "5");
            assert_eq!(layer.document["tunables"][0]["step"].to_string(), "1.0");
            assert_eq!(read(layer.document.clone()).unwrap(), layer);
        }
        let error = with(json!({})).unwrap_err().to_string();
        assert!(error.starts_with("`layer_presence`: expected one of"), "{error}");
        let error = with(json!({ "queries": [{ "query": "up" }] })).unwrap_err().to_string();
        assert_eq!(error, "`layer_presence.queries[0].datasource`: is required");
        assert_eq!(read(json!({})).unwrap_err().to_string(), "`apiVersion`: is required");
    }
}
