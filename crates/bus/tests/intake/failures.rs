//! What is tried again, and for how long.

use kernel::{Error, Key, Refusal};
use serde_json::{Value, json};

use crate::stage::Stage;

fn stale() -> Error {
    Refusal::Stale { key: Key::new("note", "all"), expected: 1, found: 2 }.into()
}

fn away() -> Error {
    Error::unavailable("the realm", "it is away")
}

fn state(answer: &Value) -> (&Value, &Value) {
    (&answer["state"], &answer["status"])
}

#[tokio::test(start_paused = true)]
async fn a_command_that_others_are_quicker_than_is_tried_until_it_succeeds() {
    let stage = Stage::new();
    stage.fail((0..20).map(|_| stale()));
    assert_eq!(stage.orders("c1").await["state"], "accepted");
}

#[tokio::test(start_paused = true)]
async fn a_system_that_is_away_for_a_moment_is_waited_for() {
    let stage = Stage::new();
    stage.fail((0..3).map(|_| away()));
    assert_eq!(stage.orders("c1").await["state"], "accepted");
}

#[tokio::test(start_paused = true)]
async fn a_system_that_stays_away_does_not_hold_up_the_next_command() {
    let stage = Stage::new();
    stage.fail((0..100).map(|_| away()));
    assert_eq!(state(&stage.orders("c1").await), (&json!("rejected"), &json!(503)));
    assert!(stage.left() > 50, "{}", stage.left());
}

#[tokio::test(start_paused = true)]
async fn one_too_many_is_rejected_at_once() {
    let stage = Stage::new();
    stage.fail([Error::Busy { retry_after_s: 60 }]);
    assert_eq!(state(&stage.orders("c1").await), (&json!("rejected"), &json!(429)));
    assert_eq!(stage.orders("c2").await["state"], "accepted");
}
