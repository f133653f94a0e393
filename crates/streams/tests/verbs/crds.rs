//! Our CRDs on a real API server: alone, and applied over the existing ones.

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use streams::model::GROUP;
use testkit::shared;

use crate::stage::{api, cluster, create, namespace};

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": { "name": name, "namespace": "gold" },
        "spec": spec,
    })
}

fn template(pod_spec: Value) -> Value {
    let texts = json!({ "labels": { "team": "core" }, "annotations": { "why": "because" } });
    let job = json!({ "backoffLimit": 3, "template": { "metadata": texts, "spec": pod_spec } });
    json!({ "metadata": texts, "spec": job })
}

fn pod() -> Value {
    json!({ "restartPolicy": "Never", "containers": [
        { "name": "main", "image": "mock:hang", "resources": { "limits": { "memory": "1Gi" } } },
    ] })
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_preserved_and_errors_are_readable() {
    let Some(kubernetes) = cluster(&streams::model::crd::all()).await else { return };
    let client = kubernetes.admin().client().await;
    namespace(&client, "gold").await;

    let made = object("StreamingJobTemplate", "standard", template(pod()));
    let made = create(&client, &made, "streamingjobtemplates").await.unwrap();
    assert_eq!(made["spec"], template(pod()), "labels and annotations are not pruned");
    // The position of the Job in charts of the other version.
    let nested =
        json!({ "metadata": {}, "template": { "spec": { "template": { "spec": pod() } } } });
    let made = object("StreamingJobTemplate", "nested", nested.clone());
    let made = create(&client, &made, "streamingjobtemplates").await.unwrap();
    assert_eq!(made["spec"], nested);

    let request =
        json!({ "streamClass": "c", "streamId": "orders", "payload": { "a": { "b": 1 } } });
    let made = object("BackfillRequest", "first", request);
    let made = create(&client, &made, "backfillrequests").await.unwrap();
    assert_eq!(
        (&made["spec"]["completed"], &made["spec"]["payload"]["a"]["b"]),
        (&json!(false), &json!(1))
    );
    let requests = api(&client, &made, "backfillrequests");
    let open = ListParams::default().fields("spec.completed=false,spec.streamId=orders");
    assert_eq!(requests.list(&open).await.unwrap().items.len(), 1);

    let mut always = pod();
    always["restartPolicy"] = "Always".into();
    let mut silent = pod();
    silent.as_object_mut().unwrap().shift_remove("restartPolicy");
    let class = json!({ "kindRef": "K", "pluralName": "ks", "apiVersion": format!("{GROUP}/v1") });
    let template_of = |pod: Value| object("StreamingJobTemplate", "bad", template(pod));
    for (bad, plural, said) in [
        (template_of(always), "streamingjobtemplates", "must be Never or OnFailure"),
        (template_of(silent), "streamingjobtemplates", "must have a restartPolicy"),
        (
            template_of(json!({ "restartPolicy": "Never", "containers": [] })),
            "streamingjobtemplates",
            "containers",
        ),
        (
            object("StreamingJobTemplate", "bad", json!({ "metadata": {} })),
            "streamingjobtemplates",
            "must have a spec",
        ),
        (
            object("BackfillRequest", "bad", json!({ "streamClass": "c" })),
            "backfillrequests",
            "streamId",
        ),
        (
            object("BackfillRequest", "bad", json!({ "streamClass": "", "streamId": "x" })),
            "backfillrequests",
            "streamClass",
        ),
    ] {
        let refused = create(&client, &bad, plural).await.unwrap_err().to_string();
        assert!(refused.contains(said), "{said} is not in: {refused}");
    }
    let mut bad = object("StreamClass", "bad", class);
    bad["metadata"].as_object_mut().unwrap().shift_remove("namespace");
    let refused = create(&client, &bad, "streamclasses").await.unwrap_err().to_string();
    assert!(refused.contains("the version alone, such as v1"), "{refused}");

    let other = Patch::Merge(json!({ "spec": { "streamId": "other" } }));
    let refused = requests.patch("first", &PatchParams::default(), &other).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be changed"), "{refused}");
    let done = Patch::Merge(json!({ "spec": { "completed": true } }));
    requests.patch("first", &PatchParams::default(), &done).await.unwrap();
    assert_eq!(requests.list(&open).await.unwrap().items.len(), 0);
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Done", "message": "it is done",
        "lastTransitionTime": "2026-11-16T07:00:00Z", "observedGeneration": 1,
    });
    let status = json!({ "status": { "phase": "Ready", "conditions": [condition] } });
    let (by, patch) = (PatchParams::default(), Patch::Merge(&status));
    let written = requests.patch_status("first", &by, &patch).await.unwrap();
    assert_eq!(serde_json::to_value(written).unwrap()["status"], status["status"]);
}

fn yaml(file: std::path::PathBuf) -> Value {
    serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn our_crds_replace_the_existing_ones_and_recorded_objects_stay_valid() {
    let (Some(data), Some(golden)) = (shared("data/streams"), shared("data/golden/streams")) else {
        return;
    };
    let names = [
        "streamclasses",
        "streamingjobtemplates",
        "backfillrequests",
        "microsoft-sql-server-streams",
    ];
    let existing: Vec<Value> =
        names.iter().map(|name| yaml(data.join(format!("crd-{name}.yaml")))).collect();
    let Some(kubernetes) = cluster(&existing).await else { return };
    let client = kubernetes.admin().client().await;
    for name in ["gold", "tpl"] {
        namespace(&client, name).await;
    }
    let class = yaml(golden.join("streamclass.yaml"))["items"][0].clone();
    create(&client, &class, "streamclasses").await.unwrap();
    let request = yaml(golden.join("backfillrequest.yaml"))["items"][0].clone();
    create(&client, &request, "backfillrequests").await.unwrap();
    let stream = yaml(golden.join("stream-running.yaml"));
    create(&client, &stream, "microsoft-sql-server-streams").await.unwrap();
    let template = yaml(golden.join("template-after-prune.yaml"));
    create(&client, &template, "streamingjobtemplates").await.unwrap();

    for crd in streams::model::crd::all() {
        let apply = PatchParams::apply("mainstay").force();
        let name = crd["metadata"]["name"].as_str().unwrap();
        let crds = api(&client, &crd, "customresourcedefinitions");
        crds.patch(name, &apply, &Patch::Apply(&crd)).await.unwrap();
    }
    for (object, plural) in [
        (&class, "streamclasses"),
        (&request, "backfillrequests"),
        (&stream, "microsoft-sql-server-streams"),
        (&template, "streamingjobtemplates"),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = api(&client, object, plural).get(name).await.unwrap();
        assert_eq!(serde_json::to_value(found).unwrap()["spec"], object["spec"], "{plural}");
    }
    // Fields that were pruned before are kept now; the API server needs a moment to apply that.
    let text =
        template["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
            .as_str()
            .unwrap();
    let written: Value = serde_json::from_str(text).unwrap();
    let templates = api(&client, &template, "streamingjobtemplates");
    let patch = Patch::Merge(json!({ "spec": written["spec"] }));
    let begun = std::time::Instant::now();
    loop {
        let now = templates.patch("stream-hang", &PatchParams::default(), &patch).await.unwrap();
        let now = serde_json::to_value(now).unwrap();
        if now["spec"] == written["spec"] {
            break;
        }
        assert!(begun.elapsed().as_secs() < 60, "still pruned: {now}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
