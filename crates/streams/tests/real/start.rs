//! The life of a stream: start, edit, suspend, fail, backfill, delete.

use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{GROUP, Stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_stream_is_backfilled_and_then_runs_with_ten_requests_at_most() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    running.until_acting().await;
    running.counting.clear();
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    let job = stage.job("s1").await.unwrap();
    let labels = job.metadata.labels.unwrap();
    assert_eq!(labels["arcane/backfilling"], "false");
    assert_eq!(labels["arcane/stream-id"], "s1");
    assert_eq!(labels["arcane/stream-kind"], "TestStream");
    let requests = stage.requests().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].data["spec"]["completed"], true);
    until("all events are there", async || {
        let events = stage.events("s1").await;
        ["StreamCreated", "BackfillCompleted"].iter().all(|r| events.iter().any(|e| e == r))
    })
    .await;
    let requests = running.counting.requests();
    let about: Vec<_> = requests.iter().filter(|requests| !requests.contains("class")).collect();
    assert!(about.len() <= 10, "{} requests: {about:#?}", about.len());
    assert_eq!(running.counting.of("create job"), 2, "{about:#?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_restarts_the_job_after_the_old_one_is_gone() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    stage.suspended("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Suspended").await;
    stage.patch("s1", json!({ "spec": { "execution": { "suspended": false } } })).await;
    stage.until_phase("s1", "Running").await;
    assert_eq!(running.counting.of("create job"), 1, "a resumed stream is not backfilled");
    let before = stage.job_uid("s1").await.unwrap();
    stage.patch("s1", json!({ "spec": { "source": { "table": "t2" } } })).await;
    until("another Job runs", async || stage.job_uid("s1").await.is_some_and(|uid| uid != before))
        .await;
    stage.until_phase("s1", "Running").await;
    let job = serde_json::to_string(&stage.job("s1").await.unwrap()).unwrap();
    assert!(job.contains("t2"), "{job}");
    assert_eq!(running.counting.of("create job"), 2, "{:#?}", running.counting.requests());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_suspended_and_resumed_with_one_job_each_time() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    stage.patch("s1", json!({ "spec": { "execution": { "suspended": true } } })).await;
    stage.until_phase("s1", "Suspended").await;
    until("its Job is gone", async || stage.job("s1").await.is_none()).await;
    running.counting.clear();
    stage.patch("s1", json!({ "spec": { "execution": { "suspended": false } } })).await;
    stage.until_phase("s1", "Running").await;
    assert_eq!(running.counting.of("create job"), 1);
    assert_eq!(running.counting.of("delete job"), 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_a_user_deletes_is_created_again() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    let before = stage.job_uid("s1").await.unwrap();
    stage.delete_job("s1").await;
    until("another Job is there", async || {
        stage.job_uid("s1").await.is_some_and(|uid| uid != before)
    })
    .await;
    let job = stage.job("s1").await.unwrap();
    assert_eq!(job.metadata.labels.unwrap()["arcane/backfilling"], "false");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_job_fails_the_stream_and_is_deleted() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    stage.stream("s1", stage.spec("fail", "ok")).await;
    stage.until_phase("s1", "Failed").await;
    until("its Job is gone", async || stage.job("s1").await.is_none()).await;
    assert!(stage.events("s1").await.iter().any(|reason| reason == "StreamingJobFailed"));
    assert!(stage.message("s1").await.contains("BackoffLimitExceeded"));
    assert_eq!(running.counting.of("create job"), 2, "one backfill, one that failed");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_request_of_a_user_is_carried_out_and_completed() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    stage.suspended("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Suspended").await;
    stage.patch("s1", json!({ "spec": { "execution": { "suspended": false } } })).await;
    stage.until_phase("s1", "Running").await;
    request(&stage, "again", "s1").await;
    until("it is completed", async || {
        stage.requests().get("again").await.unwrap().data["spec"]["completed"] == true
    })
    .await;
    until("the stream runs again", async || {
        let job = stage.job("s1").await.and_then(|job| job.metadata.labels);
        job.is_some_and(|labels| labels["arcane/backfilling"] == "false")
            && stage.phase("s1").await == "Running"
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_stream_is_refused_until_the_stream_exists() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    request(&stage, "early", "s1").await;
    let early = async || stage.requests().get("early").await.unwrap().data;
    until("it says why it waits", async || early().await["status"]["phase"] == "Failed").await;
    let why = early().await["status"]["conditions"][0]["message"].to_string();
    assert!(why.contains("There is no stream s1"), "{why}");
    stage.stream("s1", stage.spec("hang", "ok")).await;
    until("it is completed", async || early().await["spec"]["completed"] == true).await;
    let status = early().await["status"].clone();
    assert!(status["phase"].is_null() && status["conditions"].is_null(), "{status}");
    stage.until_phase("s1", "Running").await;
    running.stop().await;
}

pub async fn request(stage: &Stage, name: &str, stream: &str) {
    let request: Value = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "BackfillRequest",
        "metadata": { "name": name, "namespace": stage.namespace },
        "spec": { "streamClass": "test-stream", "streamId": stream },
    });
    let request = serde_json::from_value(request).unwrap();
    stage.requests().create(&PostParams::default(), &request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_gets_a_cron_job_and_change_capture_a_job() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    let template = json!({ "name": "ok", "namespace": stage.namespace });
    let mut spec = stage.spec("hang", "ok");
    spec["execution"]["streamingBackend"] =
        json!({ "batch": { "schedule": "0 3 * * *", "jobTemplateRef": template } });
    stage.stream("s1", spec).await;
    stage.until_phase("s1", "Scheduled").await;
    let cron_job = stage.cron_jobs().get("s1").await.unwrap();
    assert_eq!(cron_job.spec.schedule, "0 3 * * *");
    let backend = stage.spec("hang", "ok")["execution"]["streamingBackend"].clone();
    let mut patch = json!({ "spec": { "execution": { "streamingBackend": backend } } });
    patch["spec"]["execution"]["streamingBackend"]["batch"] = Value::Null;
    stage.patch("s1", patch).await;
    stage.until_phase("s1", "Running").await;
    assert!(stage.cron_jobs().get_opt("s1").await.unwrap().is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_is_deleted_with_its_stream() {
    let Some(stage) = Stage::new().await else { return };
    let running = stage.operator().await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    stage.streams().delete("s1", &DeleteParams::default()).await.unwrap();
    until("the garbage collector took it", async || stage.job("s1").await.is_none()).await;
    running.stop().await;
}
