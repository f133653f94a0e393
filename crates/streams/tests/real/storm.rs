//! An API server that refuses, asks to wait, and whose answers are lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use kernel::Ambient;
use parking_lot::Mutex;
use serde_json::json;
use streams::cluster::{Answer, Call, Cluster, Refused, Told, Watched};
use streams::model::Place;

use crate::stage::{Running, Stage, connect, until};

/// Of three requests one is carried out and answered; of one object, never six in a row are not:
/// waits double, and a test has a minute.
struct Stormy {
    cluster: Arc<dyn Cluster>,
    chance: Ambient,
    in_a_row: Mutex<HashMap<String, u32>>,
}

impl Stormy {
    fn rages(&self, call: &Call) -> u32 {
        let name = match call {
            Call::Create(_, manifest) => manifest["metadata"]["name"].to_string(),
            Call::Delete { place, .. } | Call::Patch { place, .. } => place.to_string(),
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
impl Cluster for Stormy {
    fn watch(&self, what: Watched) -> BoxStream<'static, Told> {
        self.cluster.watch(what)
    }

    async fn call(&self, call: Call) -> Result<Answer, Refused> {
        if matches!(call, Call::ReadLease(_) | Call::WriteLease(..)) {
            return self.cluster.call(call).await;
        }
        match self.rages(&call) {
            0 => Err(Refused::Busy(None)),
            1 => Err(Refused::Busy(Some(Duration::from_millis(30)))),
            2 => Err(Refused::Conflict),
            3 => Err(Refused::Away("it never arrived".into())),
            // The worst: done, and nobody knows.
            4 | 5 => {
                let _ = self.cluster.call(call).await;
                Err(Refused::Away("the answer was lost".into()))
            }
            _ => self.cluster.call(call).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stream_comes_through_a_storm_with_the_jobs_it_should_have() {
    let Some(stage) = Stage::new().await else { return };
    let cluster = connect(&stage.access).await.within(std::slice::from_ref(&stage.namespace));
    let stormy = Stormy {
        cluster: Arc::new(cluster),
        chance: Ambient::system(),
        in_a_row: Mutex::default(),
    };
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
async fn streams_that_fail_without_end_delay_no_other() {
    let Some(stage) = Stage::new().await else { return };
    let mut config = stage.config();
    config.settings.recovery.first_s = 1;
    config.settings.recovery.longest_s = 1;
    config.settings.recovery.attempts = 1000;
    let cluster = connect(&stage.access).await.within(std::slice::from_ref(&stage.namespace));
    let running = Running::start(Arc::new(cluster), config).await;
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
    let place = Place::new(&stage.namespace, "good");
    assert!(running.operator.index().lock().job_at(&place).is_some());
    running.stop().await;
}
