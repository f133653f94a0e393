//! Who sends a command.

use std::time::Duration;

use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn a_valid_token_counts_more_than_who_the_broker_says() {
    let stage = Stage::new();
    let mut message = stage.message("c1");
    message["token"] = json!(stage.token("alice", Duration::from_secs(60)));
    for author in [None, Some("orders")] {
        let answers = stage.handle(&message, author).await;
        assert_eq!(answers[0]["state"], "accepted", "{answers:?}");
    }
    let alice = kernel::identity::Principal {
        subject: "alice".into(),
        issuer: "http://localhost".into(),
        ..Default::default()
    };
    let status = kernel::command::status(&stage.app, &alice, "c1").await.unwrap();
    assert_eq!(status.status, 200);
}

#[tokio::test]
async fn a_token_that_expired_in_the_queue_is_rejected() {
    let stage = Stage::new();
    let token = stage.token("alice", Duration::from_secs(60));
    let mut messages = ["c1", "c2"].map(|id| stage.message(id));
    messages.iter_mut().for_each(|message| message["token"] = json!(token));
    assert_eq!(stage.handle(&messages[0], None).await[0]["state"], "accepted");
    // Also for one that has an identity without it.
    stage.pass(Duration::from_secs(600));
    let answers = stage.handle(&messages[1], Some("orders")).await;
    assert_eq!((&answers[0]["state"], &answers[0]["status"]), (&json!("rejected"), &json!(401)));
    let audit = stage.audit().await;
    assert!(audit.contains(&("unknown".into(), "rejected".into())), "{audit:?}");
}
