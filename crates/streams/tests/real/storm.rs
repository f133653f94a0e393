//! An API server that fails, throttles and loses responses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use kernel::Ambient;
use parking_lot::Mutex;
use serde_json::json;
use streams::model::NamespacedName;
use streams::model::watch::{ApiError, Resource, WatchEvent};
use streams::ports::api_server::{ApiServer, Request, Response};

use crate::stage::{Running, Stage, connect, until};

/// One of three requests succeeds. At most five in a row fail for one object: delays double, and a
/// test has a minute.
struct Stormy {
    api: Arc<dyn ApiServer>,
    chance: Ambient,
    in_a_row: Mutex<HashMap<String, u32>>,
}

impl Stormy {
    fn rages(&self, send: &Request) -> u32 {
        let name = match send {
            Request::Create(_, manifest) => manifest["metadata"]["name"].to_string(),
            Request::Delete { object_name, .. } | Request::Patch { object_name, .. } => {
                object_name.to_string()
            }
            other => format!("{other:?}"),
        };
        let rolled = (self.chance.fraction() * 9.0) as u32;
        let mut all = self.in_a_row.lock();
        let in_a_row = all.entry(name).or_default();
        *in_a_row = if rolled < 6 && *in_a_row < 5 { *in_a_row + 1 } else { 0 };
        if *in_a_row == 0 { 6 } else { rolled }
    }
}

#[async_trait]
impl ApiServer for Stormy {
    fn watch(&self, what: Resource) -> BoxStream<'static, WatchEvent> {
        self.api.watch(what)
    }

    async fn send(&self, send: Request) -> Result<Response, ApiError> {
        if matches!(send, Request::ReadLease(_) | Request::WriteLease(..)) {
            return self.api.send(send).await;
        }
        match self.rages(&send) {
            0 => Err(ApiError::Throttled(None)),
            1 => Err(ApiError::Throttled(Some(Duration::from_millis(30)))),
            2 => Err(ApiError::Conflict),
            3 => Err(ApiError::Unreachable("it never arrived".into())),
            // The worst case: carried out, but the response is lost.
            4 | 5 => {
                let _ = self.api.send(send).await;
                Err(ApiError::Unreachable("the answer was lost".into()))
            }
            _ => self.api.send(send).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stream_gets_its_jobs_despite_failing_requests() {
    let Some(stage) = Stage::new().await else { return };
    let api = connect(&stage.access).await.within(std::slice::from_ref(&stage.namespace));
    let stormy =
        Stormy { api: Arc::new(api), chance: Ambient::system(), in_a_row: Mutex::default() };
    let running = Running::start(Arc::new(stormy), stage.config()).await;
    for i in 0..15 {
        stage.stream(&format!("s{i}"), stage.spec("hang", "ok")).await;
    }
    let mut uids = Vec::new();
    for i in 0..15 {
        let name = format!("s{i}");
        stage.until_phase(&name, "Running").await;
        let job = stage.job(&name).await.unwrap();
        assert_eq!(job.metadata.labels.unwrap()["arcane/backfilling"], "false");
        uids.push(job.metadata.uid);
    }
    let requests = stage.requests().list(&Default::default()).await.unwrap().items;
    assert_eq!(requests.len(), 15, "one first backfill each");
    for i in 0..15 {
        stage
            .patch(&format!("s{i}"), json!({ "spec": { "execution": { "suspended": true } } }))
            .await;
    }
    for i in 0..15 {
        let name = format!("s{i}");
        stage.until_phase(&name, "Suspended").await;
        until("its Job is gone", async || stage.job(&name).await.is_none()).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_always_fail_do_not_delay_others() {
    let Some(stage) = Stage::new().await else { return };
    let mut config = stage.config();
    config.settings.recovery.first_s = 1;
    config.settings.recovery.longest_s = 1;
    config.settings.recovery.attempts = 1000;
    let api = connect(&stage.access).await.within(std::slice::from_ref(&stage.namespace));
    let running = Running::start(Arc::new(api), config).await;
    for i in 0..60 {
        let name = format!("bad{i}");
        stage.suspended(&name, stage.spec("fail", "fail")).await;
        stage
            .patch(
                &name,
                json!({
                    "metadata": { "annotations": { "mainstay.io/recover": "true" } },
                    "spec": { "execution": { "suspended": false } },
                }),
            )
            .await;
    }
    until("most have failed and been started again", async || {
        running.counting.of("create job") > 120
    })
    .await;
    stage.stream("good", stage.spec("hang", "ok")).await;
    stage.until_phase("good", "Running").await;
    let object_name = NamespacedName::new(&stage.namespace, "good");
    assert!(running.operator.index().lock().job(&object_name).is_some());
    running.stop().await;
}
