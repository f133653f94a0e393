//! The schemas of a kind: those of all kinds, and those from the kind's file.

use serde_json::{Map, Value, json};

use crate::model::kind::{Extra, Kind};

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list_of(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

/// Returns the name of an instance's schema: the name of its list without `List`.
pub fn instance_name(kind: &Kind) -> &str {
    kind.file.list.strip_suffix("List").unwrap_or(&kind.file.title)
}

/// Returns the parts of the document that need only the names of the kind.
pub fn shared(kind: &Kind) -> Value {
    let names = [
        ("${title}", kind.file.title.as_str()),
        ("${plural}", &kind.file.plural),
        ("${list}", &kind.file.list),
        ("${instance}", instance_name(kind)),
        ("${promotion_field}", &kind.promotion_field()),
    ];
    let text = include_str!("shared.yaml").to_owned();
    let text = names.iter().fold(text, |text, (name, value)| text.replace(name, value));
    serde_yaml_ng::from_str(&text).expect("a test reads it, too")
}

/// Returns all schemas of a kind's document.
pub fn all(kind: &Kind, shared: &Value) -> Map<String, Value> {
    let groups = [
        (true, "schemas"),
        (kind.has(Extra::ServiceAccounts), "service_accounts"),
        (kind.has(Extra::SsoProviders), "sso_providers"),
        (kind.has(Extra::Clusters), "clusters"),
        (kind.has(Extra::Promote), "promote"),
        (kind.has(Extra::Status), "status"),
        (kind.has(Extra::InstanceTypes), "instance_types"),
        (!kind.has(Extra::InstanceTypes), "region_types"),
    ];
    let groups = groups.into_iter().filter(|(has, _)| *has);
    let groups = groups.filter_map(|(_, group)| shared[group].as_object());
    let mut schemas: Map<String, Value> =
        groups.flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    let title = &kind.file.title;
    schemas.insert(instance_name(kind).into(), instance(kind));
    schemas.insert(format!("{title}RequestPayload"), payload(kind));
    schemas.insert(format!("{title}UpdateRequest"), update(kind));
    if kind.has(Extra::InstanceTypes) {
        let size = kind.file.size.as_ref();
        let size = size.map_or(json!({ "type": "object" }), |size| of_template(kind, size));
        schemas.insert(format!("Supported{title}Size"), size);
    }
    schemas
}

fn instance(kind: &Kind) -> Value {
    let mut own = of_template(kind, &kind.file.response);
    let reference_keys = ["id", "kind", "href"];
    if let Some(Value::Object(properties)) = own.get_mut("properties") {
        reference_keys.iter().for_each(|key| drop(properties.shift_remove(*key)));
    }
    if let Some(Value::Array(required)) = own.get_mut("required") {
        required.retain(|key| !reference_keys.iter().any(|of| key == of));
    }
    json!({ "allOf": [reference("ObjectReference"), own] })
}

/// Returns the schema of what a template renders.
fn of_template(kind: &Kind, template: &Value) -> Value {
    match template {
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("bytes") => {
            reference(&format!("Supported{}SizeBytesValueItem", kind.file.title))
        }
        Value::Object(fields) => {
            let (mut properties, mut required) = (Map::new(), Vec::new());
            for (key, value) in fields {
                let name = key.strip_suffix('?');
                if name.is_none() {
                    required.push(Value::from(key.as_str()));
                }
                properties.insert(name.unwrap_or(key).into(), of_template(kind, value));
            }
            let mut schema = json!({ "type": "object", "properties": properties });
            if !required.is_empty() {
                schema["required"] = required.into();
            }
            schema
        }
        Value::Array(items) => list_of(items.first().map_or(json!({}), |of| of_template(kind, of))),
        Value::String(text) => match text.strip_prefix("${").and_then(|t| t.strip_suffix('}')) {
            Some(expression) if !expression.contains("${") => of_expression(kind, expression),
            _ => json!({ "type": "string" }),
        },
        other => of_value(other),
    }
}

fn of_value(value: &Value) -> Value {
    json!({ "type": match value {
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        _ => "string",
    } })
}

fn of_expression(kind: &Kind, expression: &str) -> Value {
    let (path, filter) = expression.split_once('|').unwrap_or((expression, ""));
    match (filter, path.split_once('.').unwrap_or((path, ""))) {
        ("bytes", _) => json!({ "type": "integer", "format": "int64" }),
        ("text", _) => json!({ "type": "string" }),
        (_, ("size", leaf)) if !leaf.is_empty() => {
            let mut sizes = kind.file.types.iter().flat_map(|of| &of.sizes);
            sizes.find_map(|size| size.values.get(leaf)).map_or(json!({}), of_value)
        }
        (_, ("field", leaf)) => {
            let of = kind.file.fields.get(leaf).map_or("string", |field| field.field_type.name());
            json!({ "type": of })
        }
        (_, ("upgrading", _) | ("multi_az" | "deleted" | "suspended" | "routes_created", "")) => {
            json!({ "type": "boolean" })
        }
        (_, ("units" | "session_lifetime_ms", "")) => json!({ "type": "integer" }),
        (_, ("lifespan_s", "")) => json!({ "type": "integer", "nullable": true }),
        (_, ("created_at" | "updated_at", "")) => {
            json!({ "type": "string", "format": "date-time" })
        }
        (_, ("expires_at", "")) => {
            json!({ "type": "string", "format": "date-time", "nullable": true })
        }
        (_, ("own_cluster_id", "")) => json!({ "type": "string", "nullable": true }),
        (_, ("routes", "")) => {
            let text = json!({ "type": "string" });
            list_of(json!({ "type": "object", "properties": { "domain": text, "router": text } }))
        }
        _ => json!({ "type": "string" }),
    }
}

fn payload(kind: &Kind) -> Value {
    let text = || json!({ "type": "string" });
    let optional = || json!({ "type": "string", "nullable": true });
    let mut properties = Map::new();
    let mut required = vec![Value::from("name")];
    for name in ["cloud_provider", "name", "region"] {
        properties.insert(name.into(), text());
    }
    if kind.file.multi_az_asked {
        properties.insert("multi_az".into(), json!({ "type": "boolean" }));
    }
    for (name, field) in &kind.file.fields {
        let mut schema = json!({ "type": field.field_type.name() });
        if field.required {
            required.push(name.as_str().into())
        } else {
            schema["nullable"] = true.into()
        }
        if !field.default.is_null() {
            schema["default"] = field.default.clone();
        }
        if let Some(max) = field.max_length {
            schema["maxLength"] = max.into();
        }
        if !field.values.is_empty() {
            schema["enum"] = field.values.clone().into();
        }
        properties.insert(name.clone(), schema);
    }
    if kind.has(Extra::InstanceTypes) {
        properties.insert("plan".into(), text());
    }
    if kind.billings().any(|(_, billing)| billing.account) {
        properties.insert("billing_cloud_account_id".into(), optional());
        properties.insert("marketplace".into(), optional());
    }
    if kind.file.types.iter().any(|of| of.billing.len() > 1) {
        properties.insert("billing_model".into(), optional());
    }
    if kind.billings().any(|(_, billing)| billing.own_cluster) {
        properties.insert("cluster_id".into(), optional());
    }
    json!({ "type": "object", "required": required, "properties": properties })
}

fn update(kind: &Kind) -> Value {
    let mut properties = Map::new();
    properties.insert("owner".into(), json!({ "type": "string", "nullable": true }));
    for (name, field) in kind.file.fields.iter().filter(|(_, field)| field.patch) {
        let schema = json!({ "type": field.field_type.name(), "nullable": true });
        properties.insert(name.clone(), schema);
    }
    json!({ "type": "object", "properties": properties })
}
