//! Classes: new, edited, without a CRD, in conflict, deleted.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{GROUP, Stage, cluster_wide, create_class, until};

async fn create_crd(client: &Client, kind: &str, plural: &str) {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase(),
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": open, "status": open },
                } },
            }],
        },
    });
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
    let name = format!("{plural}.{GROUP}");
    until("the CRD is established", async || {
        let crd = serde_json::to_value(crds.get(&name).await.unwrap()).unwrap();
        let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True")
    })
    .await;
}

async fn status(client: &Client, class: &str) -> Value {
    let classes = cluster_wide(client, "StreamClass", "streamclasses");
    classes.get(class).await.unwrap().data["status"].clone()
}

async fn until_phase(client: &Client, class: &str, phase: &str) {
    let what = format!("class {class} is {phase}");
    until(&what, async || status(client, class).await["phase"] == phase).await;
}

async fn delete(client: &Client, class: &str) {
    let classes: Api<DynamicObject> = cluster_wide(client, "StreamClass", "streamclasses");
    classes.delete(class, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_without_a_crd_is_pending_until_the_crd_is_created() {
    let Some(mut stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    create_class(&stage.client, "late", "LateStream", "late-streams").await;
    until_phase(&stage.client, "late", "Pending").await;
    let message = status(&stage.client, "late").await["conditions"][0]["message"].to_string();
    assert!(message.contains("late-streams.streaming.sneaksanddata.com"), "{message}");
    create_crd(&stage.client, "LateStream", "late-streams").await;
    stage.kind = ("LateStream".into(), "late-streams".into());
    stage.stream("s1", stage.spec("hang", "ok")).await;
    until_phase(&stage.client, "late", "Ready").await;
    stage.until_phase("s1", "Running").await;
    // The streams and Jobs of a deleted class stay as they are and are not managed.
    delete(&stage.client, "late").await;
    until("nothing is known of its streams", async || {
        running.operator.index().lock().streams_of("late").is_empty()
    })
    .await;
    assert!(stage.job("s1").await.is_some());
    assert_eq!(stage.phase("s1").await, "Running");
    let before = stage.job_uid("s1").await;
    create_class(&stage.client, "late", "LateStream", "late-streams").await;
    until_phase(&stage.client, "late", "Ready").await;
    assert_eq!(stage.job_uid("s1").await, before, "nothing was restarted");
    delete(&stage.client, "late").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_class_is_watched_under_its_new_kind() {
    let Some(mut stage) = Stage::new().await else { return };
    create_crd(&stage.client, "EditedStream", "edited-streams").await;
    let running = stage.operator().await;
    create_class(&stage.client, "edited", "EditedStream", "edited-strems").await;
    until_phase(&stage.client, "edited", "Pending").await;
    let classes = cluster_wide(&stage.client, "StreamClass", "streamclasses");
    let patch = Patch::Merge(json!({ "spec": { "pluralName": "edited-streams" } }));
    classes.patch("edited", &PatchParams::default(), &patch).await.unwrap();
    until_phase(&stage.client, "edited", "Ready").await;
    stage.kind = ("EditedStream".into(), "edited-streams".into());
    let mut spec = stage.spec("hang", "ok");
    spec["secret"] = json!({ "name": "a-secret" });
    stage.stream("s1", spec).await;
    stage.until_phase("s1", "Running").await;
    // New Jobs get the secret; running ones continue.
    let patch = Patch::Merge(json!({ "spec": { "secretRefs": ["secret"] } }));
    classes.patch("edited", &PatchParams::default(), &patch).await.unwrap();
    until("the edit is known", async || {
        let index = running.operator.index().lock();
        index.class("edited").is_some_and(|class| class.secret_refs == ["secret"])
    })
    .await;
    let before = stage.job_uid("s1").await.unwrap();
    stage.delete_job("s1").await;
    until("another Job is there", async || {
        stage.job_uid("s1").await.is_some_and(|uid| uid != before)
    })
    .await;
    let job = serde_json::to_string(&stage.job("s1").await.unwrap()).unwrap();
    assert!(job.contains(r#""secretRef":{"name":"a-secret"}"#), "{job}");
    delete(&stage.client, "edited").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_two_classes_with_one_kind_reports_the_conflict() {
    let Some(mut stage) = Stage::new().await else { return };
    create_crd(&stage.client, "SharedStream", "shared-streams").await;
    let running = stage.operator().await;
    create_class(&stage.client, "shared-b", "SharedStream", "shared-streams").await;
    until_phase(&stage.client, "shared-b", "Ready").await;
    create_class(&stage.client, "shared-a", "SharedStream", "shared-streams").await;
    until_phase(&stage.client, "shared-a", "Failed").await;
    let message = status(&stage.client, "shared-a").await["conditions"][0]["message"].to_string();
    assert!(message.contains("shared-b"), "{message}");
    stage.kind = ("SharedStream".into(), "shared-streams".into());
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    assert_eq!(running.counting.of("create job"), 2);
    // When the first one is deleted the second takes over, and nothing is restarted.
    let before = stage.job_uid("s1").await;
    delete(&stage.client, "shared-b").await;
    until_phase(&stage.client, "shared-a", "Ready").await;
    assert_eq!(stage.job_uid("s1").await, before);
    delete(&stage.client, "shared-a").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_secret_restarts_streams_with_the_annotation_and_a_new_operator_none() {
    let Some(mut stage) = Stage::new().await else { return };
    create_crd(&stage.client, "SecretStream", "secret-streams").await;
    create_class(&stage.client, "secret", "SecretStream", "secret-streams").await;
    let classes = cluster_wide(&stage.client, "StreamClass", "streamclasses");
    let patch = Patch::Merge(json!({ "spec": { "secretRefs": ["secret"] } }));
    classes.patch("secret", &PatchParams::default(), &patch).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let secret = json!({ "metadata": { "name": "password" }, "stringData": { "a": "1" } });
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    stage.kind = ("SecretStream".into(), "secret-streams".into());
    let mut spec = stage.spec("hang", "ok");
    spec["secret"] = json!({ "name": "password" });
    spec["execution"]["suspended"] = json!(true);
    let running = stage.operator().await;
    stage.stream("s1", spec).await;
    stage
        .patch(
            "s1",
            json!({
                "metadata": { "annotations": { "mainstay.io/restart-on": "secrets" } },
                "spec": { "execution": { "suspended": false } },
            }),
        )
        .await;
    stage.until_phase("s1", "Running").await;
    running.stop().await;
    let before = stage.job_uid("s1").await.unwrap();
    let running = stage.operator().await;
    running.until_acting().await;
    stage.suspended("later", stage.spec("hang", "ok")).await;
    until("a later stream is seen", async || running.counting.of("patch stream status") > 0).await;
    assert_eq!(stage.job_uid("s1").await.as_ref(), Some(&before), "nothing was restarted");
    let patch = Patch::Merge(json!({ "stringData": { "a": "2" } }));
    secrets.patch("password", &PatchParams::default(), &patch).await.unwrap();
    until("another Job runs", async || stage.job_uid("s1").await.is_some_and(|uid| uid != before))
        .await;
    delete(&stage.client, "secret").await;
    running.stop().await;
}
