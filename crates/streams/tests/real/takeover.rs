//! Taking over from another operator, and restarting: nothing is changed.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use streams::decide::foreign_owner_until;
use streams::model::hash::{go_compatible_json, md5_hex};

use crate::stage::{GROUP, Stage, until};

/// A running stream as the existing operator leaves it: rewritten spec, Job and status.
async fn running_stream(stage: &Stage, name: &str) {
    let mut spec = stage.spec("hang", "ok");
    spec["name"] = json!(name);
    let stream = stage.stream(name, spec.clone()).await;
    let json = go_compatible_json(&spec);
    let hash = md5_hex(json.as_bytes());
    let job: Value = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": stage.namespace,
            "annotations": { "configuration-hash": hash },
            "labels": {
                "arcane/backfilling": "false", "arcane/stream-id": name,
                "arcane/stream-kind": "TestStream",
            },
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/v1"), "kind": "TestStream", "name": name,
                "uid": stream.metadata.uid, "controller": true,
            }],
        },
        "spec": { "backoffLimit": 3, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "stream", "image": "mock:hang",
                "env": [
                    { "name": "STREAMCONTEXT__STREAM_ID", "value": name },
                    { "name": "STREAMCONTEXT__STREAM_KIND", "value": "TestStream" },
                    { "name": "STREAMCONTEXT__SPEC", "value": json },
                    { "name": "STREAMCONTEXT__BACKFILL", "value": "false" },
                ],
            }],
        } } },
    });
    let job = serde_json::from_value(job).unwrap();
    stage.jobs().create(&PostParams::default(), &job).await.unwrap();
    let status = json!({ "status": {
        "phase": "Running", "configurationHash": hash,
        "conditions": [{
            "type": "Ready", "status": "True", "message": "The stream is currently running.",
        }],
    } });
    let manager =
        PatchParams { field_manager: Some("arcane-operator".into()), ..Default::default() };
    stage.streams().patch_status(name, &manager, &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_installation_is_taken_over_without_a_write() {
    let Some(stage) = Stage::new().await else { return };
    for i in 0..20 {
        running_stream(&stage, &format!("s{i}")).await;
    }
    for _ in 0..2 {
        let running = stage.operator().await;
        running.until_acting().await;
        // When a stream that was created later runs, all others have been reconciled.
        stage.suspended("later", stage.spec("hang", "ok")).await;
        stage.until_phase("later", "Suspended").await;
        let requests = running.counting.requests();
        // Classes are shared with the other tests.
        let about = |requests: &&String| !requests.contains("later") && !requests.contains("class");
        let touched: Vec<_> = requests.iter().filter(about).collect();
        assert!(touched.is_empty(), "{touched:#?}");
        // One list and watch of each kind, none per stream.
        assert!(running.counting.lists().len() < 15, "{:?}", running.counting.lists());
        running.stop().await;
        stage.streams().delete("later", &Default::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_operator_is_detected_and_left_its_streams() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    let manager = PatchParams { field_manager: Some("manager".into()), ..Default::default() };
    let status = Patch::Merge(json!({ "status": { "phase": "Pending" } }));
    // Times of writes have a resolution of one second, so the second may look like the first.
    until("the stream is left to it", async || {
        stage.streams().patch_status("s1", &manager, &status).await.unwrap();
        let index = running.operator.index().lock();
        let seen = index.streams().next().and_then(|stream| index.foreign_write_seen(&stream.key));
        foreign_owner_until(&index.settings, index.leading_since, seen, jiff::Timestamp::now())
            .is_some()
    })
    .await;
    // What we wrote in between is overwritten by the other and left so.
    stage.streams().patch_status("s1", &manager, &status).await.unwrap();
    running.counting.clear();
    let classes = crate::stage::cluster_wide(&stage.client, "StreamClass", "streamclasses");
    until("the class says so", async || {
        let class = classes.get("test-stream").await.unwrap();
        let message = class.data["status"]["conditions"][0]["message"].to_string();
        message.contains("manager") || running.counting.of("patch class") > 0
    })
    .await;
    assert_eq!(running.counting.of("patch stream"), 0, "{:#?}", running.counting.requests());
    assert_eq!(stage.phase("s1").await, "Pending");
    running.stop().await;
}
