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

/// Returns all schemas of a kind's document. `shared` holds those of every kind.
pub fn all(kind: &Kind, shared: &Value) -> Map<String, Value> {
    let mut schemas = Map::new();
    let mut take = |group: &str| {
        if let Some(Value::Object(group)) = shared.get(group) {
            schemas.extend(group.clone());
        }
    };
    take("schemas");
    for (extra, group) in [
        (Extra::ServiceAccounts, "service_accounts"),
        (Extra::SsoProviders, "sso_providers"),
        (Extra::Clusters, "clusters"),
    ] {
        if kind.has(extra) {
            take(group);
        }
    }
    let title = &kind.file.title;
    schemas.insert(instance_name(kind).into(), instance(kind));
    schemas.insert(kind.file.list.clone(), page_of(instance_name(kind)));
    schemas.insert(format!("{title}RequestPayload"), payload(kind));
    schemas.insert(format!("{title}UpdateRequest"), update(kind));
    schemas.insert("CloudRegion".into(), region(kind));
    schemas.insert(bytes_name(kind), bytes());
    if kind.has(Extra::Promote) {
        schemas.insert(format!("{title}PromoteRequest"), promotion(kind));
    }
    if kind.has(Extra::Status) {
        schemas.insert("ServiceStatus".into(), service_status(kind));
    }
    if kind.has(Extra::InstanceTypes) {
        schemas.insert("RegionCapacityListItem".into(), capacity());
        schemas.extend(instance_types(kind));
    }
    if kind.has(Extra::Clusters) {
        schemas.insert("EnterpriseCluster".into(), cluster(kind));
    }
    schemas
}

fn page_of(item: &str) -> Value {
    let items = json!({
        "type": "object", "required": ["items"],
        "properties": { "items": list_of(reference(item)) },
    });
    json!({ "allOf": [reference("List"), items] })
}

fn bytes_name(kind: &Kind) -> String {
    format!("Supported{}SizeBytesValueItem", kind.file.title)
}

fn bytes() -> Value {
    let number = json!({ "type": "integer", "format": "int64" });
    json!({ "type": "object", "properties": { "bytes": number } })
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
            reference(&bytes_name(kind))
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
    let billing = || kind.file.types.iter().flat_map(|of| &of.billing);
    if billing().any(|billing| billing.account) {
        properties.insert("billing_cloud_account_id".into(), optional());
        properties.insert("marketplace".into(), optional());
    }
    if kind.file.types.iter().any(|of| of.billing.len() > 1) {
        properties.insert("billing_model".into(), optional());
    }
    if billing().any(|billing| billing.own_cluster) {
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

fn promotion(kind: &Kind) -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    let model = kind.promotion_field();
    json!({
        "type": "object",
        "required": [model],
        "properties": {
            model: text,
            "desired_marketplace": text,
            "desired_billing_cloud_account_id": text,
        },
    })
}

fn service_status(kind: &Kind) -> Value {
    let of = json!({
        "type": "object", "required": ["max_capacity_reached"],
        "properties": { "max_capacity_reached": { "type": "boolean" } },
    });
    json!({ "type": "object", "properties": { kind.file.plural.as_str(): of } })
}

fn region(kind: &Kind) -> Value {
    let (name, of) = if kind.has(Extra::InstanceTypes) {
        ("capacity", list_of(reference("RegionCapacityListItem")))
    } else {
        ("supported_instance_types", list_of(json!({ "type": "string" })))
    };
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "required": ["enabled", name],
        "properties": {
            "kind": text, "id": text, "display_name": text,
            "enabled": { "type": "boolean", "default": false }, name: of,
        },
    })
}

fn capacity() -> Value {
    json!({
        "type": "object",
        "required": ["instance_type", "available_sizes"],
        "properties": {
            "instance_type": { "type": "string" },
            "available_sizes": list_of(json!({ "type": "string" })),
        },
    })
}

fn instance_types(kind: &Kind) -> Vec<(String, Value)> {
    let named = |what: &str| format!("Supported{}{what}", kind.file.title);
    let text = json!({ "type": "string", "minLength": 1 });
    let list = json!({
        "type": "object",
        "properties": { "instance_types": list_of(reference(&named("InstanceType"))) },
    });
    let of = json!({
        "type": "object",
        "required": ["supported_billing_models", "sizes"],
        "properties": {
            "id": { "type": "string" },
            "display_name": { "type": "string" },
            "supported_billing_models": list_of(reference(&named("BillingModel"))),
            "sizes": list_of(reference(&named("Size"))),
        },
    });
    let billing = json!({
        "type": "object",
        "required": ["id", "ams_resource", "ams_product", "ams_billing_models"],
        "properties": {
            "id": text, "ams_resource": text, "ams_product": text,
            "ams_billing_models": list_of(text.clone()),
        },
    });
    let size = kind
        .file
        .size
        .as_ref()
        .map_or(json!({ "type": "object" }), |template| of_template(kind, template));
    vec![
        (named("InstanceTypesList"), list),
        (named("InstanceType"), of),
        (named("BillingModel"), billing),
        (named("Size"), size),
    ]
}

fn cluster(kind: &Kind) -> Value {
    let number = json!({ "type": "integer" });
    let (text, truth) = (json!({ "type": "string" }), json!({ "type": "boolean" }));
    let types = format!("Supported{}InstanceTypesList", kind.file.title);
    let own = json!({
        "type": "object",
        "required": ["access_kafkas_via_private_network", "multi_az"],
        "properties": {
            "access_kafkas_via_private_network": truth,
            "cluster_id": text,
            "status": text,
            "cloud_provider": text,
            "region": text,
            "multi_az": truth,
            "supported_instance_types": reference(&types),
            "capacity_information": {
                "type": "object",
                "required": ["kafka_machine_pool_node_count", "maximum_kafka_streaming_units",
                    "remaining_kafka_streaming_units", "consumed_kafka_streaming_units"],
                "properties": {
                    "kafka_machine_pool_node_count": number,
                    "maximum_kafka_streaming_units": number,
                    "remaining_kafka_streaming_units": number,
                    "consumed_kafka_streaming_units": number,
                },
            },
        },
    });
    json!({ "allOf": [reference("ObjectReference"), own] })
}
