//! What people ask of a sink, and what they are shown.

use std::sync::Arc;
use std::time::Duration;

use bus::model::Phase;
use testkit::on_every_store;
use testkit::stores::Fresh;

use crate::stage::{Other, Script, Stage};

on_every_store!(
    a_replay_sends_again_in_a_new_epoch,
    a_replay_of_a_parked_sink_goes_on_after_a_failure,
    time_in_which_nobody_tried_does_not_park_a_webhook,
    a_webhook_that_fails_for_long_is_parked_until_a_person_resumes_it,
    parked_events_can_be_discarded,
    a_second_process_takes_over_where_the_first_was,
);

async fn a_replay_sends_again_in_a_new_epoch(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a", "b", "c"]).await;
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    stage.tell.send_modify(|spec| (spec.epoch, spec.from) = (1, Some(2)));
    stage.until("again", async || stage.delivered().len() >= 5).await;
    pump.stop().await;
    assert_eq!(stage.delivered(), [1, 2, 3, 2, 3]);
    let body = stage.other.delivered.lock().last().unwrap().body.clone();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["epoch"], 1);
    assert_eq!(stage.cursor().await.unwrap().0.epoch, 1);
    // Asked for once, done once.
    let pump = stage.start();
    stage.happen(&["d"]).await;
    stage.until_all_are_delivered().await;
    pump.stop().await;
    assert_eq!(stage.delivered().len(), 6);
}

async fn a_webhook_that_fails_for_long_is_parked_until_a_person_resumes_it(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.park_after = Some(Duration::from_millis(1));
    stage.happen(&["a"]).await;
    let failing: Vec<Script> = (0..50).map(|_| Script::Fail).collect();
    stage.other.script.lock().extend(failing);
    let pump = stage.start();
    let is_parked = async || {
        let object = stage.store.object(&bus::store::key("orders")).await.unwrap();
        object.is_some_and(|object| object.phase == Phase::Parked.label())
    };
    stage.until("it is parked", &is_parked).await;
    assert!(stage.sink().await.status.reason.contains("it fails"));
    let left = stage.other.script.lock().len();
    assert!(left > 40, "it is not tried any more");
    pump.stop().await;
    stage.other.script.lock().clear();
    stage.state = Arc::default();
    let pump = stage.start();
    stage.happen(&["b"]).await;
    assert!(is_parked().await, "a restart does not resume it");
    let shown = async || stage.state.condition().0 == Phase::Parked;
    stage.until("it is shown as parked", shown).await;
    let lags = async || stage.state.lag_ms(stage.ambient.now()) > 0;
    stage.until("what waits for it is shown", lags).await;
    stage.tell.send_modify(|spec| spec.resumes += 1);
    stage.until_all_are_delivered().await;
    stage.until("it runs", async || stage.sink().await.phase == Phase::Running).await;
    pump.stop().await;
}

async fn a_replay_of_a_parked_sink_goes_on_after_a_failure(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.park_after = Some(Duration::ZERO);
    stage.happen(&["a"]).await;
    stage.other.script.lock().push_back(Script::Fail);
    let pump = stage.start();
    let parked = async || stage.state.condition().0 == Phase::Parked;
    stage.until("it is parked", parked).await;
    pump.stop().await;
    stage.park_after = Some(Duration::from_secs(60));
    let pump = stage.start();
    stage.other.script.lock().push_back(Script::Fail);
    stage.tell.send_modify(|spec| (spec.epoch, spec.from) = (1, Some(1)));
    stage.until_all_are_delivered().await;
    pump.stop().await;
}

async fn time_in_which_nobody_tried_does_not_park_a_webhook(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.park_after = Some(Duration::from_millis(400));
    stage.happen(&["a"]).await;
    stage.other.script.lock().push_back(Script::Closed);
    let pump = stage.start();
    let failing = async || {
        let object = stage.store.object(&bus::store::key("orders")).await.unwrap();
        object.is_some_and(|object| object.phase == Phase::Failing.label())
    };
    stage.until("it is failing", failing).await;
    pump.kill().await;
    let since = stage.sink().await.status.since;
    let long_ago = async || since.is_none_or(|at| stage.ambient.now().0 - at.0 > 400);
    stage.until("time passes", long_ago).await;
    stage.other.script.lock().push_back(Script::Closed);
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    pump.stop().await;
}

async fn parked_events_can_be_discarded(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a", "b"]).await;
    stage.other.refused.lock().push(1);
    let pump = stage.start();
    let parked = async || stage.cursor().await.is_some_and(|(_, cursor)| cursor.parked.len() == 1);
    stage.until("it is parked", &parked).await;
    stage.tell.send_modify(|spec| (spec.resumes, spec.discard) = (1, true));
    stage.until("it is gone", async || !parked().await).await;
    pump.stop().await;
    assert_eq!(stage.delivered(), [2]);
}

async fn a_second_process_takes_over_where_the_first_was(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    let first = stage.start();
    stage.happen(&["a", "b"]).await;
    stage.until_all_are_delivered().await;
    first.stop().await;
    let second = stage.start();
    stage.happen(&["c"]).await;
    stage.until_all_are_delivered().await;
    second.stop().await;
    assert_eq!(stage.delivered(), stage.widgets().await);
}
