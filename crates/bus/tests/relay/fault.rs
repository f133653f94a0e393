//! What fails on the way, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use async_trait::async_trait;
use bus::config::Filter;
use bus::model::{Gap, Message, Phase, Position};
use kernel::log::Event;
use kernel::relay::Renderer;
use kernel::{Error, Json, Result};
use testkit::on_every_store;
use testkit::stores::Fresh;

use crate::stage::{Other, Script, Stage};

on_every_store!(
    every_event_is_delivered_once_and_in_order,
    only_what_the_filter_wants_is_delivered,
    a_failure_repeats_what_was_in_flight_and_loses_nothing,
    a_crash_repeats_only_what_was_not_saved,
    a_side_that_keeps_the_position_gets_every_event_once,
    a_refused_event_is_parked_and_the_others_go_on,
    nothing_is_delivered_twice_when_a_batch_is_refused_for_one_event,
    a_poison_event_is_parked_and_the_others_go_on,
    a_large_event_goes_without_its_data,
    too_many_parked_events_park_the_sink,
    purged_events_leave_a_gap_that_is_shown,
    a_message_for_after_all_others_is_sent_alone,
);

async fn every_event_is_delivered_once_and_in_order(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a", "b", "a"]).await;
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    stage.happen(&["b", "a"]).await;
    stage.until_all_are_delivered().await;
    pump.stop().await;
    assert_eq!(stage.delivered(), stage.widgets().await);
    let message = stage.other.delivered.lock()[0].clone();
    let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!((message.key.as_str(), message.seq), ("widget/a", 1));
    assert_eq!(
        (&body["sequence"], &body["epoch"], &body["data"]),
        (&1.into(), &0.into(), &"a".into())
    );
    // What was delivered before a stop is not repeated after it.
    stage.other.delivered.lock().clear();
    let pump = stage.start();
    stage.happen(&["c"]).await;
    stage.until("the new one", async || !stage.delivered().is_empty()).await;
    pump.stop().await;
    assert_eq!(stage.delivered().len(), 1);
}

async fn only_what_the_filter_wants_is_delivered(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.filter = Filter { kinds: vec!["gadget".into()], ..Filter::default() };
    let pump = stage.start();
    stage.happen(&["a", "b"]).await;
    let newest = stage.store.newest_event().await.unwrap();
    pump.stop().await;
    let pump = stage.start();
    stage.until("the pump is there", async || stage.state.seq.load(Relaxed) >= newest).await;
    pump.stop().await;
    assert_eq!(stage.delivered(), [0; 0]);
    assert!(stage.cursor().await.unwrap().0.seq >= newest, "a stop saves the position");
}

async fn a_failure_repeats_what_was_in_flight_and_loses_nothing(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a", "b", "c"]).await;
    stage.other.script.lock().extend([Script::Closed, Script::Fail, Script::LoseAck]);
    let pump = stage.start();
    stage.until("both tries", async || stage.delivered().len() >= 6).await;
    pump.stop().await;
    assert_eq!(stage.delivered(), [1, 2, 3, 1, 2, 3], "in order, each time");
}

async fn a_crash_repeats_only_what_was_not_saved(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a", "b"]).await;
    let pump = stage.start();
    stage
        .until("it is saved", async || {
            stage.cursor().await.is_some_and(|(position, _)| position.seq >= 2)
        })
        .await;
    pump.kill().await;
    stage.happen(&["c"]).await;
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    pump.stop().await;
    assert_eq!(stage.delivered(), stage.widgets().await);
}

async fn a_side_that_keeps_the_position_gets_every_event_once(fresh: &Fresh) {
    let other = Other::default();
    *other.position.lock() = Some(Position::default());
    let stage = Stage::new(fresh, other);
    stage.happen(&["a", "b"]).await;
    stage.other.script.lock().push_back(Script::LoseAck);
    let pump = stage.start();
    stage
        .until("a position there", async || {
            stage.other.position.lock().is_some_and(|there| there.seq >= 2)
        })
        .await;
    // Killed before our own position is saved.
    pump.kill().await;
    stage.happen(&["c"]).await;
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    pump.stop().await;
    assert_eq!(stage.delivered(), stage.widgets().await, "none twice");
}

async fn a_refused_event_is_parked_and_the_others_go_on(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a", "b", "c"]).await;
    stage.other.refused.lock().push(2);
    let pump = stage.start();
    stage.until("the others", async || stage.delivered() == [1, 3]).await;
    stage
        .until("it is parked", async || {
            stage.cursor().await.is_some_and(|(_, cursor)| !cursor.parked.is_empty())
        })
        .await;
    let (_, cursor) = stage.cursor().await.unwrap();
    assert_eq!((cursor.parked[0].seq, cursor.parked[0].reason.as_str()), (2, "nobody wants it"));
    // A person has mended what was wrong.
    stage.other.refused.lock().clear();
    stage.tell.send_modify(|spec| spec.resumes += 1);
    stage.until("it is sent again", async || stage.delivered().contains(&2)).await;
    stage
        .until("nothing is parked", async || stage.cursor().await.unwrap().1.parked.is_empty())
        .await;
    pump.stop().await;
}

async fn nothing_is_delivered_twice_when_a_batch_is_refused_for_one_event(fresh: &Fresh) {
    let other = Other { all_or_nothing: true, ..Other::default() };
    *other.position.lock() = Some(Position::default());
    let stage = Stage::new(fresh, other);
    stage.happen(&["a", "b", "c", "d"]).await;
    stage.other.refused.lock().extend([2, 3]);
    let pump = stage.start();
    stage.until("the others", async || stage.delivered().contains(&4)).await;
    pump.kill().await;
    assert_eq!(stage.delivered(), [1, 4]);
    let (_, cursor) = stage.cursor().await.unwrap();
    let parked: Vec<i64> = cursor.parked.iter().map(|event| event.seq).collect();
    assert_eq!(parked, [2, 3], "known before the position of the other side moved past them");
}

/// Cannot render one event.
pub struct Picky;

#[async_trait]
impl Renderer for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    async fn render(&self, event: &Event) -> Result<Vec<Message>> {
        let text = match event.subject.id() {
            "poison" => return Err(Error::internal("a message", "it makes no sense")),
            "silent" => return Ok(Vec::new()),
            "panic" => panic!("as the test wants"),
            id => id.to_owned(),
        };
        let message = |after_all| Message {
            seq: event.seq,
            to: Default::default(),
            key: event.subject.to_string(),
            content_type: "text/plain",
            attributes: Vec::new(),
            body: text.clone().into(),
            after_all,
        };
        Ok(vec![message(text == "summary")])
    }
}

async fn a_poison_event_is_parked_and_the_others_go_on(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.renderer = Some(Arc::new(Picky));
    stage.happen(&["a", "poison", "silent", "b", "panic", "c"]).await;
    let pump = stage.start();
    stage.until("the others", async || stage.delivered() == [1, 4, 6]).await;
    stage.happen(&["panic", "d"]).await;
    stage.until_delivered("d").await;
    pump.stop().await;
    let (_, cursor) = stage.cursor().await.unwrap();
    let reasons: Vec<&str> = cursor.parked.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!((reasons.len(), cursor.parked[0].seq), (3, 2));
    assert!(reasons[0].contains("it makes no sense"), "{reasons:?}");
    assert!(
        reasons[1..].iter().all(|why| why.contains("panicked: as the test wants")),
        "{reasons:?}"
    );
}

async fn a_large_event_goes_without_its_data(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen_with("a", Json::encode(&"x".repeat(2000))).await;
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    pump.stop().await;
    let message = stage.other.delivered.lock()[0].clone();
    let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!(body["dataref"], "http://here/api/v1/events?after=0&limit=1");
    assert!(body.get("data").is_none() && body.get("datacontenttype").is_none(), "{body}");
}

async fn too_many_parked_events_park_the_sink(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.other.refused.lock().extend(1..=1000);
    let objects: Vec<String> = (0..120).map(|n| format!("o{n}")).collect();
    stage.happen(&objects.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let pump = stage.start();
    stage
        .until("it is parked", async || {
            stage
                .store
                .object(&bus::store::key("orders"))
                .await
                .unwrap()
                .is_some_and(|object| object.phase == Phase::Parked.label())
        })
        .await;
    assert!(stage.sink().await.status.reason.contains("events are parked"));
    // It stays so over a restart, until a person says otherwise.
    pump.stop().await;
    stage.other.refused.lock().clear();
    let pump = stage.start();
    stage.tell.send_modify(|spec| spec.resumes += 1);
    stage.until_all_are_delivered().await;
    stage.until("it runs", async || stage.sink().await.phase == Phase::Running).await;
    pump.stop().await;
    assert_eq!(stage.cursor().await.unwrap().1.parked, []);
}

async fn purged_events_leave_a_gap_that_is_shown(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    let pump = stage.start();
    stage.until("it has a cursor", async || stage.cursor().await.is_some()).await;
    pump.stop().await;
    let before = stage.cursor().await.unwrap().0.seq;
    stage.happen(&["a", "b", "c", "d"]).await;
    let newest = stage.store.newest_event().await.unwrap();
    // Older than everything that waits.
    let oldest = stage.purge().await;
    assert!(oldest > before + 1 && oldest <= newest);
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    pump.stop().await;
    let (_, cursor) = stage.cursor().await.unwrap();
    assert_eq!(cursor.gaps, [Gap { first: before + 1, last: oldest - 1 }]);
}

async fn a_message_for_after_all_others_is_sent_alone(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.renderer = Some(Arc::new(Picky));
    stage.filter = Filter { kinds: vec!["widget".into()], ..Filter::default() };
    stage.happen(&["a", "b", "summary", "c"]).await;
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    pump.stop().await;
    assert_eq!(*stage.other.calls.lock(), [2, 2], "the summary waits for those before it");
    assert_eq!(stage.delivered(), [1, 2, 3, 4]);
}
