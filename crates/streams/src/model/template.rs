//! A StreamingJobTemplate: the template of a stream's Job.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::hash::{go_compatible_json, md5_hex};
use super::meta::{Raw, Revision};
use super::{CrdVersion, NamespacedName};

pub type RawTemplate = Raw<Value, IgnoredAny>;

#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub crd_version: CrdVersion,
    pub object_name: NamespacedName,
    pub revision: Revision,
    /// `metadata` (labels and annotations) and `spec` of the Job; or why it is invalid.
    pub job: Result<Value, String>,
    pub hash: String,
}

impl Template {
    pub fn of(raw: &RawTemplate, crd_version: CrdVersion) -> Template {
        Template {
            crd_version,
            object_name: raw.metadata.object_name(),
            revision: raw.metadata.revision(),
            job: job(&raw.spec, crd_version),
            hash: md5_hex(go_compatible_json(&raw.spec).as_bytes()),
        }
    }
}

/// The Job in a template: the spec itself in v1, `spec.template` in v1beta1. Both are accepted in
/// either version, since charts of one version ship templates of the other.
fn job(spec: &Value, crd_version: CrdVersion) -> Result<Value, String> {
    let (wanted, found) = match crd_version {
        CrdVersion::V1 if spec.pointer("/spec/template").is_some() => ("spec.spec", &spec["spec"]),
        _ if spec.pointer("/template/spec/template").is_some() => {
            ("spec.template.spec", &spec["template"]["spec"])
        }
        CrdVersion::V1 => ("spec.spec", &spec["spec"]),
        CrdVersion::V1Beta1 if spec.pointer("/spec/template").is_some() => {
            ("spec.spec", &spec["spec"])
        }
        CrdVersion::V1Beta1 => ("spec.template.spec", &spec["template"]["spec"]),
    };
    let problem = |what: &str| Err(format!("{wanted}{what}"));
    let Some(fields) = found.as_object() else {
        return problem(" is missing: it must be the spec of a Job");
    };
    let Some(containers) = fields.get("template").and_then(|pod| pod.pointer("/spec/containers"))
    else {
        return problem(".template.spec.containers is missing: a Job needs a container");
    };
    if containers.as_array().is_none_or(Vec::is_empty) {
        return problem(".template.spec.containers is empty: a Job needs a container");
    }
    let mut metadata = Map::new();
    for part in ["labels", "annotations"] {
        if let Some(Value::Object(texts)) = spec.pointer(&format!("/metadata/{part}")) {
            metadata.insert(part.into(), Value::Object(texts.clone()));
        }
    }
    Ok(json!({ "metadata": metadata, "spec": found }))
}
