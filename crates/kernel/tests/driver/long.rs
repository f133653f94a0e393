//! Long work: tokens, progress, cancellation, and the time of the next attempt.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kernel::change::{Cause, Wake, Write};
use kernel::driver::{AttemptResult, Config, Progress, Requeue};
use kernel::log::EventFilter;
use kernel::queue::State;
use kernel::telemetry::Trace;
use kernel::{Change, Error, Lane, Object};
use parking_lot::Mutex;
use testkit::on_every_store;
use testkit::stores::Fresh;
use tokio::sync::Semaphore;

use crate::stage::*;

on_every_store!(
    the_id_of_an_effect_is_that_of_its_object_generation_and_step,
    progress_is_shown_in_the_row_and_as_an_event_and_writes_no_object,
    an_attempt_is_cancelled_when_its_object_has_a_newer_generation,
    a_worker_can_name_the_time_of_its_next_attempt,
    an_attempt_runs_in_the_trace_of_the_command_that_led_to_it,
);

const MINUTE: Duration = Duration::from_secs(60);

async fn the_id_of_an_effect_is_that_of_its_object_generation_and_step(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let ids: Arc<Mutex<Vec<[String; 2]>>> = Arc::default();
    let noted = ids.clone();
    let worker = player(&Arc::default(), move |attempt| {
        noted.lock().push(["one", "two"].map(|step| attempt.effect_id(step)));
        let (object, first) = (attempt.object.clone(), attempt.failures == 0);
        async move {
            if object.generation == 1 && first {
                return Err(Error::unavailable("the other side", "asked"));
            }
            let next = Object { generation: object.generation + 1, ..object };
            let requeue =
                if next.generation == 2 { Requeue::After(MINUTE) } else { Requeue::Never };
            Ok((
                Change { write: Some(Write::update(next, "updated")), ..Change::default() },
                requeue,
            ))
        }
        .boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    let row = stage.row_in(&key("a"), State::Waiting, 1).await;
    stage.pass(stage.now().until(row.due)).await;
    stage.row_in(&key("a"), State::Waiting, 0).await;
    stage.pass(MINUTE).await;
    stage.gone(&key("a")).await;
    let ids = ids.lock().clone();
    assert_eq!(ids[0], ids[1], "the same over retries");
    assert!(ids[0][0] != ids[0][1] && ids[1][0] != ids[2][0], "{ids:?}");
}

async fn an_attempt_runs_in_the_trace_of_the_command_that_led_to_it(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let trace = Trace::parse("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01");
    let cause = Some(Cause { command: Some("k".into()), trace });
    let created = stage.creation(stage.object(KIND, "a", "acme"), Lane::Normal);
    stage.commit(Change { cause, ..created }).await;
    let sent: Arc<Mutex<Option<String>>> = Arc::default();
    let noted = sent.clone();
    let worker = player(&Arc::default(), move |_| {
        *noted.lock() = kernel::telemetry::current_traceparent();
        async { Ok((Change::default(), Requeue::Never)) }.boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    stage.gone(&key("a")).await;
    let sent = sent.lock().clone().expect("its calls carry a trace");
    assert!(sent.starts_with("00-0123456789abcdef0123456789abcdef-"), "{sent}");
}

async fn progress_is_shown_in_the_row_and_as_an_event_and_writes_no_object(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let caused = Cause { command: Some("k".into()), trace: None };
    let created = stage.creation(stage.object(KIND, "a", "acme"), Lane::Normal);
    stage.commit(Change { cause: Some(caused.clone()), ..created }).await;
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let worker = player(&Arc::default(), move |attempt| {
        let gate = gate.clone();
        async move {
            for percent in [10, 11, 12] {
                let message = "copying".to_owned();
                attempt.progress(Progress { message, percent: Some(percent) }).await?;
            }
            gate.acquire().await.unwrap().forget();
            Ok((Change::default(), Requeue::After(MINUTE)))
        }
        .boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    let noted = async || stage.row(&key("a")).await.is_some_and(|row| !row.note.is_empty());
    eventually("the row says how far it is", noted).await;
    assert_eq!(stage.row(&key("a")).await.unwrap().note, "copying (10 %)");
    open.add_permits(1);
    let row = stage.row_in(&key("a"), State::Waiting, 0).await;
    assert_eq!(row.note, "", "not longer than it goes on");
    assert_eq!(stage.get("a").await.revision, 1);
    let filter = EventFilter { subject: Some(key("a")), ..EventFilter::default() };
    let events = stage.store.events(0, &filter, 10).await.unwrap();
    let said: Vec<_> =
        events[1..].iter().map(|event| (event.kind.as_str(), event.data.text())).collect();
    let data = r#"{"message":"copying","percent":10}"#;
    assert_eq!(said, [("mainstay.thing.progress", data)], "at most once a second");
    assert_eq!(events[1].cause, caused, "it is of the command that led to it");
}

async fn an_attempt_is_cancelled_when_its_object_has_a_newer_generation(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let seen = Arc::default();
    let worker = player(&seen, |attempt| {
        async move {
            if attempt.object.generation == 1 {
                attempt.cancelled().cancelled().await;
                return Err(Error::Transient("it was cancelled".into()));
            }
            Ok((phase(attempt, "ready"), Requeue::Never))
        }
        .boxed()
    });
    // It is not renewed before the test is over.
    let driver = stage.driver("d", worker, Config { lease_s: 3600, ..config(1) });
    seen.delivery(1).await;
    let mut object = stage.get("a").await;
    object.generation = 2;
    let wakes = vec![Wake::for_object(&object, stage.now())];
    let write = Some(Write::update(object, "updated"));
    let change = Change { wakes, write, ..Change::default() };
    // By another replica, where there can be one.
    let store = fresh.replica().await.unwrap_or_else(|| fresh.store.clone());
    store.commit_all(vec![change], stage.now()).await.unwrap().remove(0).unwrap();
    stage.gone(&key("a")).await;
    assert_eq!(stage.get("a").await.phase, "ready");
    assert_eq!(
        driver.ended(2).await,
        [AttemptResult::RequeueAt, AttemptResult::Done],
        "no failure, and no backoff"
    );
}

async fn a_worker_can_name_the_time_of_its_next_attempt(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let at = stage.now().plus(Duration::from_secs(86_400));
    let worker = player(&Arc::default(), move |_| {
        async move { Ok((Change::default(), Requeue::At(at))) }.boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    let row = stage.row_in(&key("a"), State::Waiting, 0).await;
    let off = row.due.0.abs_diff(at.0);
    assert!(off < 60_000, "it is due at {}, not at {at}", row.due);
}
