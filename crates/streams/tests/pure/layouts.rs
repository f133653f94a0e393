//! The three layouts of the spec, and the errors of invalid ones.

use serde_json::{Value, json};
use streams::model::spec_layout::{Backend, Execution, read};
use streams::model::{CrdVersion, NamespacedName};

use crate::world::{batch, capture};

fn object_name(name: &str) -> NamespacedName {
    NamespacedName::new("t", name)
}

fn problem(spec: &Value) -> String {
    read(spec, "n", CrdVersion::V1).unwrap_err().to_string()
}

#[test]
fn all_layouts_are_parsed_to_the_same_execution() {
    for suspended in [false, true] {
        for layout in ["v0", "v1", "v2"] {
            let expected = Execution {
                suspended,
                backend: Some(Backend::ChangeCapture { template: object_name("stream") }),
                backfill: Some(object_name("backfill")),
            };
            assert_eq!(read(&capture(layout, suspended), "n", CrdVersion::V1), Ok(expected));
        }
    }
}

#[test]
fn a_batch_takes_precedence_and_its_own_template_is_the_default_for_backfills() {
    for (layout, backfill) in [("v1", "backfill"), ("v2", "batch")] {
        let mut spec = batch(layout, false);
        let schedule = "0 * * * *".into();
        let expected = Execution {
            suspended: false,
            backend: Some(Backend::Batch { schedule, template: object_name("batch") }),
            backfill: Some(object_name(backfill)),
        };
        assert_eq!(read(&spec, "n", CrdVersion::V1).as_ref(), Ok(&expected));
        spec["execution"]["streamingBackend"]["changeCapture"] =
            json!({ "jobTemplateRef": { "name": "stream", "namespace": "t" } });
        assert_eq!(read(&spec, "n", CrdVersion::V1), Ok(expected), "both are set");
    }
}

#[test]
fn templates_default_to_the_namespace_of_the_stream() {
    let mut spec = capture("v1", false);
    for path in [
        "/execution/backfillJobTemplateRef",
        "/execution/streamingBackend/changeCapture/jobTemplateRef",
    ] {
        spec.pointer_mut(path).unwrap().as_object_mut().unwrap().remove("namespace");
    }
    let execution = read(&spec, "n", CrdVersion::V1).unwrap();
    assert_eq!(execution.backfill, Some(NamespacedName::new("n", "backfill")));
    assert_eq!(execution.backend.unwrap().template(), &NamespacedName::new("n", "stream"));
}

#[test]
fn a_missing_backend_is_valid() {
    for spec in [
        json!({ "execution": { "layoutVersion": "v2", "streamingBackend": null } }),
        json!({ "execution": { "layoutVersion": "v2", "streamingBackend": { "batch": null, "changeCapture": null } } }),
    ] {
        let execution = read(&spec, "n", CrdVersion::V1).unwrap();
        assert_eq!((execution.backend, execution.backfill), (None, None));
    }
}

#[test]
fn errors_name_the_field_and_a_valid_value() {
    let mut spec = capture("v1", false);
    spec["execution"]["layoutVersion"] = json!("v3");
    assert_eq!(
        problem(&spec),
        "spec.execution.layoutVersion is \"v3\"; it can be \"v1\" or \"v2\", or left out"
    );
    spec["execution"]["layoutVersion"] = json!(1);
    assert_eq!(problem(&spec), "spec.execution.layoutVersion must be a text");
    let mut spec = capture("v2", false);
    spec["execution"]["suspended"] = json!("yes");
    assert_eq!(problem(&spec), "spec.execution.suspended must be true or false");
    let mut spec = capture("v2", false);
    spec["execution"]["streamingBackend"]["changeCapture"]["backfillJobTemplateRef"] = json!(null);
    assert_eq!(
        problem(&spec),
        "spec.execution.streamingBackend.changeCapture.backfillJobTemplateRef.name is missing: \
         the name of a StreamingJobTemplate"
    );
    let mut spec = batch("v1", false);
    spec["execution"]["streamingBackend"]["batch"]["schedule"] = json!("  ");
    assert!(
        problem(&spec).starts_with("spec.execution.streamingBackend.batch.schedule is missing")
    );
    let mut spec = capture("v0", false);
    spec.as_object_mut().unwrap().remove("suspended");
    assert!(problem(&spec).starts_with("spec.suspended is missing"));
    for odd in [json!(null), json!([]), json!("x"), json!(7)] {
        assert!(problem(&odd).starts_with("spec is missing"), "{odd}");
    }
    let mut spec = capture("v0", false);
    spec["jobTemplateRef"] = json!("stream");
    assert!(problem(&spec).starts_with("spec.jobTemplateRef.name is missing"));
    spec["jobTemplateRef"] = json!({ "name": 5 });
    assert_eq!(problem(&spec), "spec.jobTemplateRef.name must be a text");
}

#[test]
fn before_v1_an_annotation_suspends_and_the_backfill_may_have_no_template_of_its_own() {
    let spec = json!({ "jobTemplateRef": { "name": "a" } });
    let execution = read(&spec, "n", CrdVersion::V1Beta1).unwrap();
    assert!(!execution.suspended);
    assert_eq!(execution.backfill, Some(NamespacedName::new("n", "a")));
    let spec =
        json!({ "jobTemplateRef": { "name": "a" }, "reloadingJobTemplateRef": { "name": "b" } });
    assert_eq!(
        read(&spec, "n", CrdVersion::V1Beta1).unwrap().backfill,
        Some(NamespacedName::new("n", "b"))
    );
}
