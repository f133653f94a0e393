//! The manifests of Jobs, and the errors of invalid templates and specs.

use serde_json::{Value, json};
use streams::decide::Action;
use streams::decide::action::K8sEvent;
use streams::decide::build::{Subject, event_manifest};
use streams::model::CrdVersion;

use crate::world::{World, batch, capture, now, template};

/// The manifest of the Job that is created next.
fn made(world: &World) -> Value {
    let actions = world.decide().actions;
    let made = actions.into_iter().find_map(|action| match action {
        Action::StartJob { manifest, .. } | Action::StartSchedule { manifest } => Some(manifest),
        _ => None,
    });
    made.unwrap_or_else(|| panic!("{:?}", world.does()))
}

fn refusal(world: &World) -> String {
    let actions = world.decide().actions;
    let said = actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) if status.error => Some(status.message),
        _ => None,
    });
    said.unwrap_or_else(|| panic!("{:?}", world.does()))
}

fn variables(manifest: &Value) -> Vec<(&str, &Value)> {
    let containers = manifest.pointer("/spec/template/spec/containers");
    let containers =
        containers.or(manifest.pointer("/spec/jobTemplate/spec/template/spec/containers"));
    let env = containers.unwrap()[0]["env"].as_array().unwrap();
    env.iter()
        .map(|v| (v["name"].as_str().unwrap(), v.get("value").unwrap_or(&v["valueFrom"])))
        .collect()
}

fn value<'v>(manifest: &'v Value, name: &str) -> &'v str {
    let all = variables(manifest);
    let found: Vec<_> = all.iter().filter(|(there, _)| *there == name).collect();
    assert_eq!(found.len(), 1, "{name} in {all:?}");
    found[0].1.as_str().unwrap()
}

#[test]
fn a_backfill_job_gets_its_request_in_the_environment_in_order() {
    let mut world = World::new();
    world.stream("Pending", capture("v2", false)).request("b1", |_| {});
    let manifest = made(&world);
    let names: Vec<&str> = variables(&manifest).iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "APPLICATION_VERSION",
            "STREAMCONTEXT__STREAM_ID",
            "STREAMCONTEXT__STREAM_KIND",
            "STREAMCONTEXT__SPEC",
            "STREAMCONTEXT__OVERRIDE",
            "STREAMCONTEXT__BACKFILL",
            "STREAMCONTEXT__BACKFILL_ID",
        ]
    );
    assert_eq!(value(&manifest, "STREAMCONTEXT__BACKFILL_ID"), "b1");
    assert_eq!(
        value(&manifest, "STREAMCONTEXT__OVERRIDE"),
        r#"{"streamClass":"class-a","streamId":"s1"}"#
    );
    assert!(value(&manifest, "STREAMCONTEXT__SPEC").contains(r"a\u003cb\u0026c\u003ed"));
    assert_eq!(manifest["spec"]["template"]["spec"]["containers"][0]["image"], "backfill");
    assert_eq!(
        manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"],
        json!([{ "secretRef": { "name": "password" } }])
    );
}

#[test]
fn a_payload_is_passed_under_all_three_names() {
    let mut world = World::new();
    world.stream("Pending", capture("v0", false)).request("b1", |request| {
        request["spec"]["payload"] =
            json!({ "source": { "from": "2020", "url": null }, "new": [1] });
    });
    let manifest = made(&world);
    let read = |name: &str| serde_json::from_str::<Value>(value(&manifest, name)).unwrap();
    let payload = json!({ "source": { "from": "2020", "url": null }, "new": [1] });
    assert_eq!(read("STREAMCONTEXT__OVERRIDE")["payload"], payload);
    assert_eq!(read("STREAMCONTEXT_OVERRIDE"), payload);
    let over = read("STREAMCONTEXT_SPEC_OVERRIDE");
    assert_eq!(over["source"], json!({ "from": "2020", "url": null }));
    assert_eq!(over["new"], json!([1]));
    assert_eq!(over["jobTemplateRef"]["name"], "stream", "what the payload does not name stays");
}

#[test]
fn every_container_gets_the_variables_and_those_of_the_template_are_overwritten() {
    let mut world = World::new();
    let mut two = template("x");
    two["metadata"] = json!({ "labels": { "mine": "1", "arcane/backfilling": "maybe" }, "annotations": { "a": "b" } });
    let pod = &mut two["spec"]["template"]["spec"];
    pod["initContainers"] = json!([{ "name": "i" }]);
    pod["containers"] = json!([
        { "name": "a", "env": [{ "name": "STREAMCONTEXT__BACKFILL", "value": "?" }, { "name": "Z", "value": "z" }] },
        { "name": "b", "env": null, "envFrom": [{ "configMapRef": { "name": "c" } }] },
    ]);
    world.template("stream", &two);
    world.stream("Pending", capture("v1", false));
    let manifest = made(&world);
    let pod = &manifest["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"], json!([{ "name": "i" }]));
    assert_eq!(
        pod["containers"][0]["env"][0],
        json!({ "name": "STREAMCONTEXT__BACKFILL", "value": "false" })
    );
    assert_eq!(pod["containers"][1]["env"].as_array().unwrap().len(), 4);
    assert_eq!(pod["containers"][1]["envFrom"].as_array().unwrap().len(), 2);
    assert_eq!(manifest["metadata"]["labels"]["mine"], "1");
    assert_eq!(manifest["metadata"]["labels"]["arcane/backfilling"], "false");
    assert_eq!(manifest["metadata"]["annotations"]["a"], "b");
}

#[test]
fn the_runs_of_a_cron_job_are_named_by_their_jobs() {
    for layout in ["v1", "v2"] {
        let mut world = World::new();
        world.stream("", batch(layout, false));
        let manifest = made(&world);
        assert_eq!(manifest["kind"], "CronJob");
        assert_eq!(manifest["spec"]["schedule"], "0 * * * *");
        assert_eq!(manifest["spec"]["concurrencyPolicy"], "Forbid");
        assert!(manifest["metadata"].get("labels").is_none());
        let hash = &world.index.stream(&world.key()).unwrap().hash;
        assert_eq!(manifest["metadata"]["annotations"], json!({ "configuration-hash": hash }));
        assert_eq!(value(&manifest, "STREAMCONTEXT__BACKFILL"), "true");
        assert_eq!(
            value(&manifest, "STREAMCONTEXT__OVERRIDE"),
            r#"{"streamClass":"","streamId":""}"#
        );
        let id = variables(&manifest)
            .into_iter()
            .find(|(name, _)| *name == "STREAMCONTEXT__BACKFILL_ID");
        assert_eq!(
            id.unwrap().1,
            &json!({ "fieldRef": { "fieldPath": "metadata.labels['job-name']" } })
        );
        let image = manifest.pointer("/spec/jobTemplate/spec/template/spec/containers/0/image");
        assert_eq!(image, Some(&json!("batch")));
    }
}

#[test]
fn errors_of_manifests_name_the_field() {
    let mut world = World::new();
    let mut spec = capture("v0", false);
    spec["secretRef"] = json!({ "name": "" });
    world.stream("Pending", spec);
    assert_eq!(
        refusal(&world),
        "spec.secretRef.name is missing: the name of a Secret, as StreamClass class-a asks"
    );

    let mut spec = capture("v0", false);
    spec["jobTemplateRef"]["name"] = json!("elsewhere");
    world.stream("Pending", spec);
    assert_eq!(
        refusal(&world),
        "StreamingJobTemplate t/elsewhere is not there; the stream starts when it is"
    );

    let mut clash = template("x");
    clash["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{ "name": "STREAMCONTEXT__STREAM_ID", "value": "me" }]);
    world.template("stream", &clash);
    world.stream("Pending", capture("v0", false));
    assert!(refusal(&world).contains("t/stream sets STREAMCONTEXT__STREAM_ID itself"));

    for (spec, why) in [
        (
            json!({ "spec": { "template": { "spec": { "containers": [] } } } }),
            "containers is empty",
        ),
        (json!({ "spec": { "template": {} } }), "containers is missing"),
        (json!({}), "spec.spec is missing"),
        (json!("x"), "spec.spec is missing"),
        (
            json!({ "spec": { "template": { "spec": { "containers": ["x"] } } } }),
            "is not an object",
        ),
        (
            json!({ "spec": { "template": { "spec": { "containers": [{ "env": "x" }] } } } }),
            "env of a container is not a list",
        ),
    ] {
        world.template("stream", &spec);
        let said = refusal(&world);
        assert!(said.contains("t/stream") && said.contains(why), "{said}");
    }

    let mut world = World::new();
    let mut huge = capture("v0", false);
    huge["source"] = json!("x".repeat(140_000));
    world.stream("Pending", huge);
    assert!(refusal(&world).contains("at most 131,000"), "{}", refusal(&world));
}

#[test]
fn templates_of_the_other_crd_version_are_accepted() {
    let mut world = World::new();
    world.template("stream", &json!({ "template": template("old") }));
    world.stream("Pending", capture("v0", false));
    assert_eq!(made(&world)["spec"]["template"]["spec"]["containers"][0]["image"], "old");
}

#[test]
fn before_v1_secrets_are_not_in_the_spec_and_annotations_say_whose_it_is() {
    let mut world = World::of(CrdVersion::V1Beta1, &["secretRef"]);
    world.template(
        "stream",
        &json!({ "metadata": { "labels": { "l": "1" } }, "template": template("old") }),
    );
    world.stream("RUNNING", capture("v0", false));
    let manifest = made(&world);
    assert!(!value(&manifest, "STREAMCONTEXT__SPEC").contains("secretRef"));
    let annotations = &manifest["metadata"]["annotations"];
    assert_eq!(annotations["stream.arcane.sneaksanddata.com/api-plural-name"], "as");
    let checksum = annotations["stream.arcane.sneaksanddata.com/configuration-checksum"].as_str();
    assert_eq!(checksum.unwrap().len(), 7);
    assert_eq!(manifest["metadata"]["labels"]["l"], "1");
}

#[test]
fn events_name_the_stream_and_are_limited_in_length() {
    let subject = Subject { api_version: "g/v1", kind: "A", namespace: "n", name: "s", uid: "u" };
    let event = K8sEvent::warning("Odd", "x".repeat(5000));
    let made = event_manifest(subject, &event, now());
    assert_eq!(made["message"].as_str().unwrap().len(), 1000);
    assert_eq!(made["source"]["component"], "arcane-operator");
    assert_eq!(made["metadata"]["namespace"], "n");
    assert_eq!(made["involvedObject"]["uid"], "u");
    let of_class = Subject { namespace: "", ..subject };
    let made = event_manifest(of_class, &event, now());
    assert_eq!(made["metadata"]["namespace"], "default");
    assert!(made["involvedObject"].get("namespace").is_none());
}
