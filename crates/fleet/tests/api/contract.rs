//! The contracts as they are written down, and whether an answer fits one of their schemas.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use testkit::shared;

use crate::stage::Api;

pub const PARTS: [&str; 3] = ["public", "private_agent", "private_admin"];

pub struct Contract(pub Value);

impl Contract {
    /// Of an API; none, and a message, where there are no contracts.
    pub fn of(api: Api) -> Option<Contract> {
        let name = api.prefix.split('/').nth(2).expect("the name of the API");
        let file = shared("contracts")?.join(format!("{name}.json"));
        Some(Contract(serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()))
    }

    /// Every operation of a part: path, method, and what is said of it.
    pub fn operations(&self, part: &str) -> Vec<(String, String, Value)> {
        let mut found = Vec::new();
        for (path, item) in self.0[part]["paths"].as_object().expect("paths") {
            let common = item["parameters"].as_array().cloned().unwrap_or_default();
            for (method, operation) in item.as_object().expect("methods") {
                if method == "parameters" {
                    continue;
                }
                let mut operation = operation.clone();
                let own = operation["parameters"].as_array().cloned().unwrap_or_default();
                operation["parameters"] = common.iter().cloned().chain(own).collect();
                found.push((path.clone(), method.to_uppercase(), operation));
            }
        }
        found
    }

    /// A schema by its reference; what the parts for agents and admins share is in the public one.
    fn resolve<'a>(&'a self, part: &str, schema: &'a Value) -> &'a Value {
        let Some(name) = schema["$ref"].as_str().and_then(|of| of.rsplit('/').next()) else {
            return schema;
        };
        let of = |part: &str| self.0[part]["schemas"].get(name);
        // One that refers to its own name means the public one.
        let own = of(part).filter(|found| found["$ref"] != schema["$ref"]);
        let found = own.or_else(|| of("public"));
        self.resolve("public", found.unwrap_or_else(|| panic!("no schema {name} in {part}")))
    }

    /// What is wrong with an answer, by its place in it.
    pub fn problems(&self, part: &str, schema: &Value, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.check(part, schema, value, "", &mut found);
        found
    }

    fn check(&self, part: &str, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let schema = self.resolve(part, schema);
        if value.is_null() {
            if schema["nullable"] != true {
                found.push(format!("{at}: null"));
            }
            return;
        }
        let mut object = Object::default();
        self.collect(part, schema, &mut object);
        let of = object.of.as_deref().unwrap_or("object");
        let fits = match of {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" | "long" => value.is_i64(),
            "number" => value.is_number(),
            other => panic!("{at}: the contract has a type {other}"),
        };
        if !fits {
            found.push(format!("{at}: {value} is not of type {of}"));
            return;
        }
        if schema["format"] == "date-time" {
            let time: Result<jiff::Timestamp, _> = value.as_str().unwrap_or_default().parse();
            if time.is_err() {
                found.push(format!("{at}: {value} is not a time"));
            }
        }
        if let Some(least) = schema["minLength"].as_u64()
            && value.as_str().is_some_and(|text| (text.len() as u64) < least)
        {
            found.push(format!("{at}: is shorter than {least}"));
        }
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            self.check(part, &schema["items"], item, &format!("{at}[{i}]"), found);
        }
        if let Some(fields) = value.as_object() {
            self.check_fields(part, &object, fields, at, found);
        }
    }

    fn check_fields(
        &self,
        part: &str,
        object: &Object,
        fields: &Map<String, Value>,
        at: &str,
        found: &mut Vec<String>,
    ) {
        for name in &object.required {
            // A name that is nowhere described is a mistake of the contract.
            if object.properties.contains_key(name) && !fields.contains_key(name) {
                found.push(format!("{at}.{name}: is missing"));
            }
        }
        for (name, value) in fields {
            let inside = format!("{at}.{name}");
            match (object.properties.get(name), &object.additional) {
                (Some(schema), _) | (None, Some(schema)) => {
                    self.check(part, schema, value, &inside, found);
                }
                (None, None) => found.push(format!("{inside}: the contract has no such field")),
            }
        }
    }

    /// All parts of a schema together.
    fn collect(&self, part: &str, schema: &Value, into: &mut Object) {
        let schema = self.resolve(part, schema);
        for one in schema["allOf"].as_array().into_iter().flatten() {
            self.collect(part, one, into);
        }
        if let Some(of) = schema["type"].as_str() {
            into.of = Some(of.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            into.properties.insert(name.clone(), property.clone());
        }
        let required = schema["required"].as_array().into_iter().flatten();
        into.required.extend(required.filter_map(Value::as_str).map(str::to_owned));
        if let Some(additional) = schema.get("additionalProperties") {
            into.additional = Some(additional.clone());
        }
    }

    /// A schema without references and names: properties and types only. For comparing.
    pub fn plain(&self, part: &str, schema: &Value) -> Value {
        let schema = self.resolve(part, schema);
        let mut object = Object::default();
        self.collect(part, schema, &mut object);
        if let Some(additional) = &object.additional {
            return serde_json::json!({ "*": self.plain(part, additional) });
        }
        match object.of.as_deref() {
            Some("array") => Value::Array(vec![self.plain(part, &schema["items"])]),
            Some("object") | None => {
                let mut names: Vec<&String> = object.properties.keys().collect();
                names.sort();
                let of = |name: &String| (name.clone(), self.plain(part, &object.properties[name]));
                Value::Object(names.into_iter().map(of).collect())
            }
            Some(of) => match schema["format"].as_str() {
                Some(format) => format!("{of} {format}").into(),
                None => of.into(),
            },
        }
    }
}

#[derive(Default)]
struct Object {
    of: Option<String>,
    properties: Map<String, Value>,
    required: BTreeSet<String>,
    additional: Option<Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_held_against_all_parts_of_a_schema() {
        let contract = Contract(json!({
            "public": { "schemas": {
                "Ref": { "type": "object", "required": ["id"], "properties": { "id": { "type": "string" } } },
                "Thing": { "allOf": [{ "$ref": "#/components/schemas/Ref" }, {
                    "type": "object", "required": ["n", "nowhere"], "properties": {
                        "n": { "type": "integer" },
                        "at": { "type": "string", "format": "date-time" },
                        "maybe": { "type": "string", "nullable": true },
                        "many": { "type": "array", "items": { "$ref": "#/components/schemas/Ref" } },
                        "map": { "type": "object", "additionalProperties": { "type": "string" } },
                    },
                }] },
            } },
        }));
        let thing = json!({ "$ref": "#/components/schemas/Thing" });
        let problems = |value: Value| contract.problems("public", &thing, &value);
        let right = json!({"id": "a", "n": 1, "at": "2026-01-01T00:00:00Z", "maybe": null,
            "many": [{"id": "b"}], "map": {"x": "y"}});
        assert_eq!(problems(right), Vec::<String>::new());
        assert_eq!(problems(json!({"id": "a"})), [".n: is missing"]);
        assert_eq!(problems(json!({"n": 1})), [".id: is missing"]);
        for (field, value) in [
            ("n", json!("1")),
            ("at", json!("soon")),
            ("id", json!(null)),
            ("many", json!([{}])),
            ("map", json!({"x": 1})),
            ("more", json!(1)),
            ("many", json!([{"id": "a", "b": 1}])),
        ] {
            let mut wrong = json!({"id": "a", "n": 1});
            wrong[field] = value;
            assert_eq!(problems(wrong.clone()).len(), 1, "{wrong}");
        }
        assert_eq!(
            contract.plain("public", &thing),
            json!({
            "at": "string date-time", "id": "string", "many": [{"id": "string"}],
            "map": {"*": "string"}, "maybe": "string", "n": "integer"})
        );
    }
}
