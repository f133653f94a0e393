//! The OpenAPI document of a kind's API.

use serde_json::{Value, json};

use crate::model::kind::Kind;

pub fn document(kind: &Kind) -> Value {
    json!({"openapi": "3.0.3", "info": {"title": kind.file.title, "version": "v1"}})
}
