//! Schemas of the kernel's scalar types for the OpenAPI document.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::{Json, Key, Timestamp};

impl PartialSchema for Key {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Names an object: kind/id"))
            .pattern(Some("^[A-Za-z0-9-]+/[A-Za-z0-9._:-]+$"))
            .into()
    }
}

impl ToSchema for Key {}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl ToSchema for Timestamp {}

impl PartialSchema for Json {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().description(Some("As defined by the object's kind")).into()
    }
}

impl ToSchema for Json {}
