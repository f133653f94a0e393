//! The CustomResourceDefinitions of streams. Names, columns and enums are those of the existing
//! ones, so that either can replace the other; unknown fields of templates are preserved.

use serde_json::{Map, Value, json};

use crate::model::GROUP;

/// The longest name that Kubernetes allows.
const NAME_CHARS_MAX: u32 = 253;

/// All definitions, in the order of application.
pub fn all() -> Vec<Value> {
    vec![classes(), templates(), requests()]
}

/// The definitions as input for `kubectl apply -f -`.
pub fn yaml() -> String {
    let one = |crd: &Value| serde_yaml_ng::to_string(crd).expect("JSON is YAML");
    all().iter().map(one).collect::<Vec<_>>().join("---\n")
}

/// The parts that differ between definitions.
struct Definition {
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    scope: &'static str,
    description: &'static str,
    /// Name, JSON path and type of each printer column.
    columns: &'static [(&'static str, &'static str, &'static str)],
    spec: Value,
    status: Value,
    selectable: &'static [&'static str],
}

impl Definition {
    fn crd(self) -> Value {
        let columns = self
            .columns
            .iter()
            .map(|(name, path, kind)| json!({ "name": name, "type": kind, "jsonPath": path }));
        let mut version = json!({
            "name": "v1",
            "served": true,
            "storage": true,
            "subresources": { "status": {} },
            "additionalPrinterColumns": columns.collect::<Vec<_>>(),
            "schema": { "openAPIV3Schema": {
                "type": "object",
                "description": self.description,
                "properties": {
                    "apiVersion": { "type": "string" },
                    "kind": { "type": "string" },
                    "metadata": { "type": "object" },
                    "spec": self.spec,
                    "status": self.status,
                },
            } },
        });
        if !self.selectable.is_empty() {
            let paths = self.selectable.iter().map(|path| json!({ "jsonPath": path }));
            version["selectableFields"] = paths.collect();
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{}.{GROUP}", self.plural) },
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.kind.to_lowercase(),
                    "shortNames": [self.short],
                    "categories": ["streaming"],
                },
                "versions": [version],
            },
        })
    }
}

fn classes() -> Value {
    Definition {
        kind: "StreamClass",
        plural: "streamclasses",
        short: "sc",
        scope: "Cluster",
        description: "A kind of streams: the operator watches every object of it.",
        columns: &[
            ("ApiGroupRef", ".spec.apiGroupRef", "string"),
            ("ApiVersion", ".spec.apiVersion", "string"),
            ("KindRef", ".spec.kindRef", "string"),
            ("PluralName", ".spec.pluralName", "string"),
            ("Phase", ".status.phase", "string"),
            ("Age", ".metadata.creationTimestamp", "date"),
        ],
        spec: object(
            &["apiVersion", "kindRef", "pluralName"],
            [
                (
                    "apiGroupRef",
                    json!({
                        "type": "string",
                        "maxLength": NAME_CHARS_MAX,
                        "description": format!("The group of the kind; {GROUP} if it is left out."),
                    }),
                ),
                (
                    "apiVersion",
                    with_rule(
                        name("The version of the kind, without its group, such as v1."),
                        "!self.contains('/')",
                        "must be the version alone, such as v1; the group goes into apiGroupRef",
                    ),
                ),
                ("kindRef", name("The kind, as its objects say it, such as ParquetStream.")),
                ("pluralName", name("The kind's name in paths, such as parquet-streams.")),
                (
                    "secretRefs",
                    json!({
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "Fields right below the spec of a stream that name a Secret, as in {name: my-secret}. Its keys become environment variables of the Job.",
                    }),
                ),
            ],
        ),
        status: status(),
        selectable: &[],
    }
    .crd()
}

fn requests() -> Value {
    let fixed = |field: &'static str, value: Value| {
        let message = format!("cannot be changed; another {field} is another request");
        with_rule(value, "self == oldSelf", &message)
    };
    Definition {
        kind: "BackfillRequest",
        plural: "backfillrequests",
        short: "bfr",
        scope: "Namespaced",
        description: "A request to load all data of a stream again. It is carried out once.",
        columns: &[
            ("StreamClass", ".spec.streamClass", "string"),
            ("StreamId", ".spec.streamId", "string"),
            ("Completed", ".spec.completed", "string"),
            ("Phase", ".status.phase", "string"),
            ("Age", ".metadata.creationTimestamp", "date"),
        ],
        spec: object(
            &["streamClass", "streamId"],
            [
                (
                    "streamClass",
                    fixed("streamClass", name("The StreamClass that the stream is of.")),
                ),
                (
                    "streamId",
                    fixed("streamId", name("The stream's name, in the request's namespace.")),
                ),
                (
                    "completed",
                    json!({
                        "type": "boolean",
                        "default": false,
                        "description": "Set by the operator when the backfill has succeeded.",
                    }),
                ),
                (
                    "payload",
                    json!({
                        "type": "object",
                        "nullable": true,
                        "x-kubernetes-preserve-unknown-fields": true,
                        "description": "Merged into the stream's spec for this backfill: objects are merged, everything else is replaced.",
                    }),
                ),
            ],
        ),
        status: status(),
        selectable: &[".spec.completed", ".spec.streamId"],
    }
    .crd()
}

fn templates() -> Value {
    Definition {
        kind: "StreamingJobTemplate",
        plural: "streamingjobtemplates",
        short: "sjt",
        scope: "Namespaced",
        description: "The Job that streams are run with. The operator adds names, labels, environment and secrets.",
        columns: &[
            (
                "MemoryLimit",
                ".spec.spec.template.spec.containers[0].resources.limits.memory",
                "string",
            ),
            ("CpuLimit", ".spec.spec.template.spec.containers[0].resources.limits.cpu", "string"),
            ("Image", ".spec.spec.template.spec.containers[0].image", "string"),
            ("Age", ".metadata.creationTimestamp", "date"),
        ],
        spec: with_rule(
            open(
                &[],
                [
                    ("apiVersion", json!({ "type": "string" })),
                    ("kind", json!({ "type": "string" })),
                    ("metadata", metadata("Labels and annotations of the Jobs.")),
                    ("spec", job_spec()),
                    (
                        "template",
                        with_description(
                            open(&[], []),
                            "The Job, where charts of the v1beta1 line put it. Use spec instead.",
                        ),
                    ),
                ],
            ),
            "has(self.spec) || has(self.template)",
            "must have a spec: that of a batch/v1 Job, with template.spec.containers in it",
        ),
        status: open(&[], []),
        selectable: &[],
    }
    .crd()
}

/// Validates the fields of a Job's spec that deserve an error message of our own. Kubernetes
/// validates the rest when a Job is created; a copy of its schema would soon be outdated.
fn job_spec() -> Value {
    let container = open(
        &["name"],
        [
            ("name", json!({ "type": "string", "minLength": 1 })),
            ("image", json!({ "type": "string" })),
        ],
    );
    let containers = json!({
        "type": "array",
        "minItems": 1,
        "items": container,
        "description": "Each is given the stream's environment and secrets.",
    });
    let restart = json!({
        "type": "string",
        "description": "Never or OnFailure.",
        "x-kubernetes-validations": [{
            "rule": "self in ['Never', 'OnFailure']",
            "message": "must be Never or OnFailure: pods of a Job cannot be restarted always",
        }],
    });
    let pod_spec = with_rule(
        open(&["containers"], [("containers", containers), ("restartPolicy", restart)]),
        "has(self.restartPolicy)",
        "must have a restartPolicy, Never or OnFailure: without one it is Always, which a Job cannot have",
    );
    let pod = open(
        &["spec"],
        [("metadata", metadata("Labels and annotations of the pods.")), ("spec", pod_spec)],
    );
    with_description(open(&["template"], [("template", pod)]), "The spec of a batch/v1 Job.")
}

fn metadata(description: &str) -> Value {
    let texts = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let metadata = open(&[], [("labels", texts()), ("annotations", texts())]);
    with_description(metadata, description)
}

fn status() -> Value {
    let condition = object(
        &["lastTransitionTime", "message", "reason", "status", "type"],
        [
            ("lastTransitionTime", json!({ "type": "string", "format": "date-time" })),
            ("message", json!({ "type": "string", "maxLength": 32768 })),
            ("observedGeneration", json!({ "type": "integer", "format": "int64", "minimum": 0 })),
            (
                "reason",
                json!({
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                }),
            ),
            ("status", json!({ "type": "string", "enum": ["True", "False", "Unknown"] })),
            ("type", json!({ "type": "string", "maxLength": 316 })),
        ],
    );
    object(
        &[],
        [
            ("conditions", json!({ "type": "array", "items": condition })),
            (
                "phase",
                json!({ "type": "string", "enum": ["Pending", "Ready", "Failed", "Stopped"] }),
            ),
        ],
    )
}

fn object<const N: usize>(required: &[&str], properties: [(&str, Value); N]) -> Value {
    let mut object = json!({ "type": "object" });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    let properties: Map<String, Value> =
        properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if !properties.is_empty() {
        object["properties"] = properties.into();
    }
    object
}

/// An object that preserves unknown fields.
fn open<const N: usize>(required: &[&str], properties: [(&str, Value); N]) -> Value {
    let mut object = object(required, properties);
    object["x-kubernetes-preserve-unknown-fields"] = true.into();
    object
}

fn name(description: &str) -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_CHARS_MAX,
        "description": description,
    })
}

fn with_rule(mut schema: Value, rule: &str, message: &str) -> Value {
    schema["x-kubernetes-validations"] = json!([{ "rule": rule, "message": message }]);
    schema
}

fn with_description(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares `deploy/crds` with the output of `mainstay crds`. `UPDATE_GENERATED=1` rewrites it.
    #[test]
    fn the_files_in_deploy_are_what_is_generated() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        let update = std::env::var_os("UPDATE_GENERATED").is_some();
        for crd in all() {
            let file = format!("{}.yaml", crd["spec"]["names"]["plural"].as_str().unwrap());
            let text = serde_yaml_ng::to_string(&crd).unwrap();
            if update {
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join(&file), &text).unwrap();
            }
            let found = std::fs::read_to_string(dir.join(&file)).unwrap_or_default();
            assert!(found == text, "deploy/crds/{file}: run this test with UPDATE_GENERATED=1");
        }
    }

    /// The names that clients of the existing definitions use.
    #[test]
    fn everything_that_others_go_by_is_as_it_was() {
        let all = all();
        let of = |i: usize| &all[i]["spec"];
        let names = |i: usize| {
            let names = &of(i)["names"];
            (names["plural"].clone(), names["shortNames"][0].clone(), of(i)["scope"].clone())
        };
        assert_eq!(names(0), (json!("streamclasses"), json!("sc"), json!("Cluster")));
        assert_eq!(names(1), (json!("streamingjobtemplates"), json!("sjt"), json!("Namespaced")));
        assert_eq!(names(2), (json!("backfillrequests"), json!("bfr"), json!("Namespaced")));
        let columns = |i: usize, n: usize| {
            let columns = of(i)["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
            columns[..n].iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>()
        };
        let class = ["ApiGroupRef", "ApiVersion", "KindRef", "PluralName", "Phase"];
        assert_eq!(columns(0, 5), class);
        assert_eq!(columns(1, 3), ["MemoryLimit", "CpuLimit", "Image"]);
        assert_eq!(columns(2, 3), ["StreamClass", "StreamId", "Completed"]);
        let selectable = &of(2)["versions"][0]["selectableFields"];
        let expected = json!([{ "jsonPath": ".spec.completed" }, { "jsonPath": ".spec.streamId" }]);
        assert_eq!(*selectable, expected);
        for i in [0, 2] {
            let phase = of(i)["versions"][0]
                .pointer("/schema/openAPIV3Schema/properties/status/properties/phase/enum");
            assert_eq!(phase, Some(&json!(["Pending", "Ready", "Failed", "Stopped"])));
        }
        for crd in &all {
            assert_eq!(crd["spec"]["versions"][0]["subresources"], json!({ "status": {} }));
        }
    }
}
