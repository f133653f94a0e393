//! Streams that fail, and streams that are deleted and created again at once.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::stage::{Running, Stage, connect, until};

/// An operator whose first wait after a failure is two seconds.
async fn impatient(stage: &Stage) -> Running {
    let api = connect(&stage.access).await.within(std::slice::from_ref(&stage.namespace));
    let mut config = stage.config();
    config.settings.recovery.first_s = 2;
    Running::start(std::sync::Arc::new(api), config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_stream_gets_one_job_per_attempt_and_recovers_when_its_template_is_mended() {
    let Some(stage) = Stage::new().await else { return };
    let running = impatient(&stage).await;
    stage.template("broken", "mock:fail").await;
    stage.suspended("s1", stage.spec("broken", "ok")).await;
    // A stream that is resumed is not backfilled first.
    stage.until_phase("s1", "Suspended").await;
    stage
        .patch(
            "s1",
            json!({
                "metadata": { "annotations": { "mainstay.io/recover": "true" } },
                "spec": { "execution": { "suspended": false } },
            }),
        )
        .await;
    let failures = async || {
        let stream = stage.streams().get("s1").await.unwrap();
        let noted = stream.metadata.annotations.unwrap_or_default();
        let noted = noted.get("mainstay.io/recovered").and_then(|text| text.split(' ').next());
        noted.and_then(|count| count.parse::<usize>().ok()).unwrap_or(0)
    };
    until("it has failed three times", async || failures().await == 3).await;
    stage.until_phase("s1", "Failed").await;
    assert_eq!(running.counting.of("create job"), 3, "{:#?}", running.counting.requests());
    let mended = json!({ "spec": { "spec": { "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "stream", "image": "mock:hang" }],
    } } } } });
    let templates = stage.of("StreamingJobTemplate", "streamingjobtemplates");
    templates.patch("broken", &PatchParams::default(), &Patch::Merge(mended)).await.unwrap();
    stage.until_phase("s1", "Running").await;
    assert_eq!(running.counting.of("create job"), 4, "{:#?}", running.counting.requests());
    assert!(stage.events("s1").await.iter().any(|reason| reason == "StreamRecovered"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_deleted_while_it_backfills_and_created_again_at_once_is_backfilled() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    running.until_acting().await;
    for round in 0..10 {
        stage.stream("s1", stage.spec("hang", "hang")).await;
        stage.until_phase("s1", "Backfilling").await;
        stage.streams().delete("s1", &DeleteParams::background()).await.unwrap();
        let again = stage.stream("s1", stage.spec("hang", "ok")).await;
        let uid = again.metadata.uid.unwrap();
        stage.until_phase("s1", "Running").await;
        let requests = stage.requests().list(&Default::default()).await.unwrap().items;
        let backfilled = requests.iter().any(|request| {
            let owners = request.metadata.owner_references.as_deref().unwrap_or_default();
            owners.iter().any(|owner| owner.uid == uid) && request.data["spec"]["completed"] == true
        });
        assert!(backfilled, "round {round}: {requests:#?}");
        stage.streams().delete("s1", &DeleteParams::background()).await.unwrap();
        until("everything of it is gone", async || {
            let requests = stage.requests().list(&Default::default()).await.unwrap().items;
            stage.job("s1").await.is_none() && requests.is_empty()
        })
        .await;
    }
    running.stop().await;
}
