//! Faults: interrupted watches, an unreachable API server, missing permissions, invalid streams.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::chaos::Proxy;
use testkit::kubernetes::Access;

use crate::stage::{GROUP, Stage, cluster_wide, create_class, server, until};

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_interrupted_watches_are_reconciled() {
    let Some(stage) = Stage::new().await else { return };
    let proxy = Proxy::to(server().await.unwrap().address()).await;
    let running = stage.operator_as(&stage.access.via(proxy.address())).await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    let before = stage.job_uid("s1").await.unwrap();
    proxy.cut();
    stage.delete_job("s1").await;
    stage.stream("s2", stage.spec("hang", "ok")).await;
    proxy.mend();
    stage.until_phase("s2", "Running").await;
    until("the Job is back", async || stage.job_uid("s1").await.is_some_and(|uid| uid != before))
        .await;
    // Connections are reset repeatedly.
    for i in 0..10 {
        stage.stream(&format!("r{i}"), stage.spec("hang", "ok")).await;
        proxy.reset();
    }
    for i in 0..10 {
        stage.until_phase(&format!("r{i}"), "Running").await;
    }
    let jobs = stage.jobs().list(&Default::default()).await.unwrap().items;
    assert_eq!(jobs.len(), 12);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_survives_an_outage_of_the_api_server() {
    let Some(shared) = testkit::kubernetes() else { return };
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/crds.yaml");
    let server = shared.private(&[("crds", crds)]).await;
    let stage = Stage::on(&server).await;
    create_class(&stage.client, "test-stream", "TestStream", "test-streams").await;
    let running = stage.operator().await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    let uid = stage.job_uid("s1").await;
    server.server.kill().await;
    until("it no longer acts", async || !running.operator.is_leading()).await;
    assert_eq!(
        running.operator.unhealthy_reason(),
        None,
        "an unreachable API server does not make the operator unhealthy"
    );
    server.server.start().await;
    let stage = Stage { client: stage.access.client().await, ..stage };
    until("it acts again", async || running.operator.is_leading()).await;
    stage.stream("s2", stage.spec("hang", "ok")).await;
    stage.until_phase("s2", "Running").await;
    assert_eq!(stage.job_uid("s1").await, uid, "nothing was restarted");
    running.stop().await;
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

/// A service account with only these permissions.
async fn account(stage: &Stage, rules: &[Value]) -> Access {
    let name = &stage.namespace;
    let named = json!({ "name": name });
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.client.clone(), name);
    let account = serde_json::from_value(json!({ "metadata": named })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let roles: Api<ClusterRole> = Api::all(stage.client.clone());
    let role = serde_json::from_value(json!({ "metadata": named, "rules": rules })).unwrap();
    roles.create(&PostParams::default(), &role).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(stage.client.clone());
    let binding = json!({
        "metadata": named,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": name }],
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    stage.access.of_account(name, name).await
}

async fn grant(stage: &Stage, rules: &[Value]) {
    let roles: Api<ClusterRole> = Api::all(stage.client.clone());
    let patch = Patch::Merge(json!({ "rules": rules }));
    roles.patch(&stage.namespace, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named_in_a_condition() {
    let Some(stage) = Stage::new().await else { return };
    let all = ["get", "list", "watch", "create", "delete", "patch", "update"];
    let mut rules = vec![
        rule(GROUP, &["*"], &all),
        rule("", &["events"], &all),
        rule("coordination.k8s.io", &["leases"], &all),
        rule("batch", &["cronjobs"], &all),
        rule("batch", &["jobs"], &["get", "list", "watch", "delete"]),
    ];
    let limited = account(&stage, &rules).await;
    let running = stage.operator_as(&limited).await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    until("the stream says what is missing", async || {
        let message = stage.message("s1").await;
        message.contains("cannot create resource \"jobs\" in API group \"batch\"")
    })
    .await;
    rules[4] = rule("batch", &["jobs"], &all);
    grant(&stage, &rules).await;
    stage.until_phase("s1", "Running").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_streams_do_not_affect_others() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    let big = "x".repeat(400_000);
    stage.stream("no-layout", json!({ "execution": { "layoutVersion": 7 } })).await;
    stage.stream("nothing", json!({})).await;
    let mut huge = stage.spec("hang", "ok");
    huge["huge"] = json!(big);
    stage.stream("huge", huge).await;
    let mut odd = stage.spec("hang", "ok");
    odd["execution"]["streamingBackend"] = json!([1, 2, 3]);
    stage.stream("odd", odd).await;
    stage.stream("no-template", stage.spec("nowhere", "nowhere")).await;
    stage.stream("fine", stage.spec("hang", "ok")).await;
    stage.until_phase("fine", "Running").await;
    for (name, said) in [("huge", "bytes"), ("no-template", "nowhere"), ("no-layout", "layout")] {
        until(&format!("{name} says what is wrong"), async || {
            stage.message(name).await.contains(said)
        })
        .await;
    }
    assert_eq!(running.operator.unhealthy_reason(), None);
    // The missing template is created, and the stream starts.
    stage.template("nowhere", "mock:ok").await;
    until("a Job is made from it", async || stage.job("no-template").await.is_some()).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_job_of_the_same_name_is_reported_and_not_changed() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    let job = json!({
        "metadata": { "name": "s1" },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "x", "image": "mock:hang" }],
        } } },
    });
    let job = serde_json::from_value(job).unwrap();
    let uid = stage.jobs().create(&PostParams::default(), &job).await.unwrap().metadata.uid;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    until("the stream says what is in its way", async || {
        stage.message("s1").await.contains("stands in its place")
    })
    .await;
    assert_eq!(stage.job_uid("s1").await, uid);
    stage.delete_job("s1").await;
    stage.until_phase("s1", "Running").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_before_everything_is_listed_and_classes_name_the_missing_permission() {
    let Some(shared) = testkit::kubernetes() else { return };
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/crds.yaml");
    let server = shared.private(&[("crds", crds)]).await;
    let stage = Stage::on(&server).await;
    create_class(&stage.client, "test-stream", "TestStream", "test-streams").await;
    let all = ["get", "list", "watch", "create", "delete", "patch", "update"];
    let mut rules = vec![
        rule(GROUP, &["*"], &all),
        rule("", &["events"], &all),
        rule("coordination.k8s.io", &["leases"], &all),
        rule("batch", &["jobs"], &all),
    ];
    let limited = account(&stage, &rules).await;
    let running = stage.operator_as(&limited).await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    let classes = cluster_wide(&stage.client, "StreamClass", "streamclasses");
    until("the class says what is missing", async || {
        let status = classes.get("test-stream").await.unwrap().data["status"].to_string();
        status.contains("cannot list resource \\\"cronjobs\\\"") && status.contains("Failed")
    })
    .await;
    assert!(!running.operator.is_ready());
    assert_eq!(running.counting.of("create job"), 0);
    rules.push(rule("batch", &["cronjobs"], &all));
    grant(&stage, &rules).await;
    stage.until_phase("s1", "Running").await;
    until("the class is ready", async || {
        classes.get("test-stream").await.unwrap().data["status"]["phase"] == "Ready"
    })
    .await;
    running.stop().await;
}
