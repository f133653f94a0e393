//! What documents a route, written as OpenAPI 3.0.
//!
//! The kernel's own routes are documented by utoipa, which writes OpenAPI 3.1 and has no references
//! to shared parameters. Contracts of existing services need both.

use serde_json::{Map, Value, json};

use super::Api;
use crate::identity::Action;

/// An operation of an OpenAPI document.
pub struct Operation {
    id: String,
    summary: String,
    tag: Option<&'static str>,
    query: &'static [&'static str],
    body: Option<String>,
    /// The status of success, and the schema of its body.
    success: (u16, Option<Value>),
    errors: &'static [u16],
}

/// A reference to a schema of the document.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

impl Operation {
    pub fn new(id: impl Into<String>, summary: impl Into<String>) -> Operation {
        Operation {
            id: id.into(),
            summary: summary.into(),
            tag: None,
            query: &[],
            body: None,
            success: (200, None),
            errors: &[],
        }
    }

    pub fn tag(mut self, tag: &'static str) -> Operation {
        self.tag = Some(tag);
        self
    }

    /// Names the parameters of the query.
    pub fn query(mut self, names: &'static [&'static str]) -> Operation {
        self.query = names;
        self
    }

    /// Names the schema of the request's body.
    pub fn body(mut self, schema: impl Into<String>) -> Operation {
        self.body = Some(schema.into());
        self
    }

    /// Sets the status of success, and names the schema of its body.
    pub fn returns(self, status: u16, schema: &str) -> Operation {
        self.returns_value(status, Some(reference(schema)))
    }

    pub fn returns_value(mut self, status: u16, schema: Option<Value>) -> Operation {
        self.success = (status, schema);
        self
    }

    pub fn errors(mut self, statuses: &'static [u16]) -> Operation {
        self.errors = statuses;
        self
    }

    pub(super) fn write<'p>(
        self,
        api: &impl Api,
        path: impl Iterator<Item = &'p str>,
        action: Action,
    ) -> Value {
        let in_path = path.map(|name| api.parameter(name, true));
        let in_query = self.query.iter().map(|name| api.parameter(name, false));
        let parameters: Vec<Value> = in_path.chain(in_query).collect();
        let mut responses = Map::new();
        let (status, schema) = &self.success;
        let mut success = json!({ "description": self.summary });
        if let Some(schema) = schema {
            success["content"] = content(schema);
        }
        responses.insert(status.to_string(), success);
        for status in self.errors {
            let error = json!({
                "description": description(*status), "content": content(&reference("Error")),
            });
            responses.insert(status.to_string(), error);
        }
        let mut operation = json!({ "operationId": self.id, "summary": self.summary });
        if let Some(tag) = self.tag {
            operation["tags"] = json!([tag]);
        }
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = &self.body {
            operation["requestBody"] =
                json!({ "required": true, "content": content(&reference(body)) });
        }
        operation["responses"] = responses.into();
        if action != Action::Public {
            operation["security"] = json!([{ "Bearer": [] }]);
        }
        operation
    }
}

fn content(schema: &Value) -> Value {
    let media_type = if schema["type"] == "string" { "text/plain" } else { "application/json" };
    json!({ media_type: { "schema": schema } })
}

fn description(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid",
        401 => "The token is missing or invalid",
        403 => "Not allowed",
        404 => "The resource does not exist",
        409 => "The resource exists already",
        _ => "Internal error",
    }
}
