//! The permissions of the chart suffice for all work of the operator.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::Ambient;
use kube::Client;
use kube::api::ListParams;
use serde_json::{Value, json};
use streams::config::Config;
use streams::controller::Operator;
use streams::model::{GROUP, RESTART_ON};
use streams::ports::kubernetes::connect;
use tokio_util::sync::CancellationToken;

use crate::stage::{api, cluster, create, namespace, plugin};

const AGGREGATE: &str = "streaming.mainstay.io/aggregate-to-operator";

fn rules(name: &str) -> Value {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/mainstay-operator");
    let text = std::fs::read_to_string(format!("{chart}/files/rules/{name}.yaml")).unwrap();
    serde_yaml_ng::from_str(&text).unwrap()
}

fn rbac(kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name },
    });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// Installs the objects of the chart.
async fn install(client: &Client) {
    namespace(client, "ops").await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "operator", "namespace": "ops" },
    });
    create(client, &account, "serviceaccounts").await.unwrap();
    let mut all = rules("operator").as_array().unwrap().clone();
    all.extend(rules("secrets").as_array().unwrap().clone());
    let selector = json!({ "matchLabels": { AGGREGATE: "true" } });
    let mut known = rbac("ClusterRole", "known", json!({ "rules": rules("streams") }));
    known["metadata"]["labels"] = json!({ AGGREGATE: "true" });
    let streams = json!({ "aggregationRule": { "clusterRoleSelectors": [selector] }, "rules": [] });
    for role in [
        rbac("ClusterRole", "operator", json!({ "rules": all })),
        rbac("ClusterRole", "streams", streams),
        known,
    ] {
        create(client, &role, "clusterroles").await.unwrap();
    }
    let mut lease = rbac("Role", "lease", json!({ "rules": rules("lease") }));
    lease["metadata"]["namespace"] = "ops".into();
    create(client, &lease, "roles").await.unwrap();
    let binding = |kind: &str, name: &str, role: &str| {
        let of = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name });
        let who = json!([{ "kind": "ServiceAccount", "name": "operator", "namespace": "ops" }]);
        rbac(kind, name, json!({ "roleRef": of, "subjects": who }))
    };
    for name in ["operator", "streams"] {
        let bound = binding("ClusterRoleBinding", name, "ClusterRole");
        create(client, &bound, "clusterrolebindings").await.unwrap();
    }
    let mut bound = binding("RoleBinding", "lease", "Role");
    bound["metadata"]["namespace"] = "ops".into();
    create(client, &bound, "rolebindings").await.unwrap();
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": { "name": name, "namespace": "prod" }, "spec": spec,
    })
}

fn template(name: &str, image: &str) -> Value {
    let pod =
        json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": image }] });
    let job = json!({ "backoffLimit": 0, "template": { "spec": pod } });
    object("StreamingJobTemplate", name, json!({ "spec": job }))
}

fn stream(name: &str, backend: Value) -> Value {
    let backfill = json!({ "name": "ok", "namespace": "prod" });
    let mut stream = object(
        "TestStream",
        name,
        json!({
            "execution": {
                "layoutVersion": "v1", "suspended": false, "backfillJobTemplateRef": backfill,
                "streamingBackend": backend,
            },
            "secretRef": { "name": "secret" },
        }),
    );
    stream["metadata"]["annotations"] = json!({ RESTART_ON: "template,secrets" });
    stream
}

/// Waits for a condition with a deadline.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_chart_suffice() {
    let mut crds = streams::model::crd::all();
    crds.push(plugin("TestStream", "test-streams"));
    let Some(kubernetes) = cluster(&crds).await else { return };
    let admin = kubernetes.admin();
    let client = admin.client().await;
    install(&client).await;
    namespace(&client, "prod").await;
    let class = |name: &str, kind: &str, plural: &str| {
        let mut class = object(
            "StreamClass",
            name,
            json!({
                "apiVersion": "v1", "kindRef": kind, "pluralName": plural, "secretRefs": ["secretRef"],
            }),
        );
        class["metadata"].as_object_mut().unwrap().shift_remove("namespace");
        class
    };
    let known = class("test", "TestStream", "test-streams");
    create(&client, &known, "streamclasses").await.unwrap();
    let late = class("late", "LateStream", "late-streams");
    create(&client, &late, "streamclasses").await.unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "secret", "namespace": "prod" },
    });
    create(&client, &secret, "secrets").await.unwrap();
    for (name, image) in [("ok", "mock:ok"), ("hang", "mock:hang"), ("fail", "mock:fail")] {
        let template = template(name, image);
        create(&client, &template, "streamingjobtemplates").await.unwrap();
    }
    let capture = |template: &str| json!({ "changeCapture": { "jobTemplateRef": { "name": template, "namespace": "prod" } } });
    let reference = json!({ "name": "ok", "namespace": "prod" });
    let batch = json!({ "batch": { "schedule": "0 0 1 1 *", "jobTemplateRef": reference } });
    let all = [
        (stream("runs", capture("hang")), "Running"),
        (stream("fails", capture("fail")), "Failed"),
        (stream("waits", batch), "Scheduled"),
    ];
    for (stream, _) in &all {
        create(&client, stream, "test-streams").await.unwrap();
    }

    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, admin.of_account("ops", "operator").await.kubeconfig()).unwrap();
    let mut config = Config::default();
    (config.probes_addr, config.metrics_addr) = (String::new(), String::new());
    config.lease.namespace = "ops".into();
    let cluster = connect(Some(&kubeconfig), None).await.unwrap();
    let operator = Operator::new(Arc::new(cluster), config, Ambient::system());
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator.clone().run(stop.clone()));
    for (stream, phase) in &all {
        let name = stream["metadata"]["name"].as_str().unwrap();
        let streams = api(&client, stream, "test-streams");
        until(&format!("{name} is {phase}"), async || {
            let now = serde_json::to_value(streams.get(name).await.unwrap()).unwrap();
            now["status"]["phase"] == *phase
        })
        .await;
    }
    // Permission to watch CRDs: one that is created later is noticed.
    let crd = plugin("LateStream", "late-streams");
    create(&client, &crd, "customresourcedefinitions").await.unwrap();
    let classes = api(&client, &late, "streamclasses");
    until("late is Ready", async || {
        let now = serde_json::to_value(classes.get("late").await.unwrap()).unwrap();
        now["status"]["phase"] == "Ready"
    })
    .await;
    let some = json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "namespace": "prod" } });
    let events = api(&client, &some, "events").list(&ListParams::default()).await.unwrap();
    let ours =
        |event: &kube::api::DynamicObject| event.data["source"]["component"] == "arcane-operator";
    assert!(events.items.iter().any(ours), "it may write events");
    let metrics = operator.metrics();
    let refused: Vec<&str> = metrics.lines().filter(|line| line.contains("forbidden")).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert!(metrics.contains("ok"), "requests are counted: {metrics}");
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// Every value that a template uses has a default in `values.yaml`.
#[test]
fn every_value_of_the_templates_has_a_default() {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/mainstay-operator");
    let values: Value =
        serde_yaml_ng::from_str(&std::fs::read_to_string(format!("{chart}/values.yaml")).unwrap())
            .unwrap();
    let mut requests = 0;
    for file in std::fs::read_dir(format!("{chart}/templates")).unwrap() {
        let file = file.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        for part in text.split(".Values.").skip(1) {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap();
            let path = part[..end].trim_end_matches('.').replace('.', "/");
            let found = values.pointer(&format!("/{path}"));
            assert!(found.is_some(), "{}: .Values.{path} has no default", file.display());
            requests += 1;
        }
        assert_eq!(text.matches("{{").count(), text.matches("}}").count(), "{}", file.display());
    }
    assert!(requests > 30, "only {requests} values are asked for");
}
