//! A cluster with v1beta1 CRDs: namespaced classes, and annotations for the desired state.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use streams::config::Config;

use crate::stage::{GROUP, Running, connect, until};

fn api(client: &Client, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client.clone(), "beta", &resource)
}

async fn make(api: &Api<DynamicObject>, version: &str, kind: &str, mut object: Value) {
    object["apiVersion"] = json!(format!("{GROUP}/{version}"));
    object["kind"] = json!(kind);
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn until_phase(api: &Api<DynamicObject>, name: &str, phase: &str) {
    until(&format!("{name} is {phase}"), async || {
        api.get(name).await.unwrap().data["status"]["phase"] == phase
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_v1beta1_are_managed() {
    let Some(shared) = testkit::kubernetes() else { return };
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/crds-beta.yaml");
    let server = shared.private(&[("crds", crds)]).await;
    let client = server.admin().client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "beta" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let templates = api(&client, "v1", "StreamingJobTemplate", "streaming-job-templates");
    for image in ["ok", "hang"] {
        let pod = json!({ "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "stream", "image": format!("mock:{image}") }],
        } });
        let template = json!({ "spec": { "backoffLimit": 0, "template": pod } });
        make(
            &templates,
            "v1",
            "StreamingJobTemplate",
            json!({ "metadata": { "name": image }, "spec": { "template": template } }),
        )
        .await;
    }
    let classes = api(&client, "v1beta1", "StreamClass", "stream-classes");
    let class = json!({
        "apiGroupRef": GROUP, "apiVersion": "v1beta1", "kindRef": "JsonStream",
        "pluralName": "json-streams", "secretRefs": [],
    });
    make(
        &classes,
        "v1beta1",
        "StreamClass",
        json!({ "metadata": { "name": "json" }, "spec": class }),
    )
    .await;
    let mut config =
        Config { probes_addr: String::new(), metrics_addr: String::new(), ..Config::default() };
    config.lease.namespace = "beta".into();
    let running = Running::start(Arc::new(connect(&server.admin()).await), config).await;
    until_phase(&classes, "json", "READY").await;
    let streams = api(&client, "v1beta1", "JsonStream", "json-streams");
    let spec = json!({
        "jobTemplateRef": { "name": "hang" }, "backfillJobTemplateRef": { "name": "ok" },
        "source": "a",
    });
    make(&streams, "v1beta1", "JsonStream", json!({ "metadata": { "name": "s1" }, "spec": spec }))
        .await;
    until_phase(&streams, "s1", "RUNNING").await;
    let jobs: Api<Job> = Api::namespaced(client.clone(), "beta");
    let job = jobs.get("s1").await.unwrap();
    let annotations = job.metadata.annotations.unwrap();
    let plural = &annotations["stream.arcane.sneaksanddata.com/api-plural-name"];
    assert_eq!(plural, "json-streams");
    assert_eq!(job.metadata.labels.unwrap()["arcane/backfilling"], "false");
    assert_eq!(running.counting.of("create job"), 2, "{:#?}", running.counting.requests());
    let state = |value: Value| {
        Patch::Merge(json!({ "metadata": { "annotations": { "arcane/state": value } } }))
    };
    streams.patch("s1", &PatchParams::default(), &state(json!("suspended"))).await.unwrap();
    until_phase(&streams, "s1", "SUSPENDED").await;
    until("its Job is gone", async || jobs.get_opt("s1").await.unwrap().is_none()).await;
    streams.patch("s1", &PatchParams::default(), &state(Value::Null)).await.unwrap();
    until_phase(&streams, "s1", "RUNNING").await;
    running.stop().await;
}
