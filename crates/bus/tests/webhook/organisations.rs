//! Whose webhooks they are: what they get, who may steer them, and how many and how fast.

use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};

use crate::receiver::{Delivery, Receiver};
use crate::server::{Setup, until};

#[tokio::test]
async fn a_webhook_gets_what_a_member_of_its_organisation_may_see() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    // Without a filter, created by an admin: still not more than a member sees.
    let all = json!({"name": "all", "url": receiver.url()});
    let (status, body) = server.post("admin", "/api/v1/sinks", all).await;
    assert_eq!(status, 201, "{body}");
    let theirs = Receiver::start().await;
    server.webhook("carol", "theirs", &theirs.url(), json!({})).await;
    let widget = server.happen("acme", "a").await;
    let other = server.happen("globex", "b").await;
    server.create("secret", "s", "acme").await;
    server.create("unknown", "u", "acme").await;
    let part = server.create("partly", "p", "acme").await;
    server.create("partly", "q", "globex").await;
    let nobody = server.happen("", "nobody").await;
    let last = server.happen("acme", "c").await;
    receiver.wait_for(&[widget, part, last]).await;
    theirs.wait_for(&[other]).await;
    let all = receiver.all();
    assert!(all.iter().all(|one| one.json()["org"] == "acme" && one.seq() != nobody));
    let text = |one: &Delivery| String::from_utf8(one.body.to_vec()).unwrap();
    assert!(!all.iter().any(|one| text(one).contains("hunter2")), "a part shows the whole");
    assert_eq!(all[1].json()["data"]["key"], "partly/p");
}

#[tokio::test]
async fn a_filter_cannot_widen_what_a_webhook_gets() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    for orgs in [json!(["globex"]), json!(["acme"]), json!(["*"])] {
        let filter = json!({"name": "x", "url": receiver.url(), "filter": {"orgs": orgs}});
        let (status, body) = server.post("alice", "/api/v1/sinks", filter).await;
        let field = body["error"]["field"].as_str();
        assert_eq!((status, field), (400, Some("filter.orgs")), "{body}");
    }
    for (field, bad) in [
        ("org", json!({"name": "x", "url": receiver.url(), "org": "globex"})),
        ("filter.owner", json!({"name": "x", "url": receiver.url(), "filter": {"owner": "x"}})),
        ("mode", json!({"name": "x", "url": receiver.url(), "mode": "avro"})),
        ("url", json!({"name": "x"})),
    ] {
        let (status, body) = server.post("alice", "/api/v1/sinks", bad).await;
        assert_eq!(status, 400, "{field}: {body}");
    }
    let filter = json!({"filter": {"kinds": ["secret", "widget"], "types": ["*"]}});
    server.webhook("alice", "orders", &receiver.url(), filter).await;
    server.create("secret", "s", "acme").await;
    server.happen("globex", "b").await;
    let seq = server.happen("acme", "a").await;
    receiver.wait_for(&[seq]).await;
}

#[tokio::test]
async fn another_organisation_finds_no_webhook() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let at = format!("/api/v1/sinks/{}", hook.id);
    let missing = "/api/v1/sinks/missing".to_owned();
    for (who, at) in [("carol", &at), ("alice", &missing)] {
        for (method, path, body) in [
            (Method::GET, at.clone(), Value::Null),
            (Method::DELETE, at.clone(), Value::Null),
            (Method::POST, format!("{at}/resume"), json!({})),
            (Method::POST, format!("{at}/replay"), json!({"from": 1})),
        ] {
            let (status, body) = server.call(who, method.clone(), &path, body).await;
            assert_eq!(status, 404, "{who}: {method} {path}: {body}");
        }
    }
    assert_eq!(server.get("carol", "/api/v1/sinks").await.1["sinks"], json!([]));
    let (_, listed) = server.get("bob", "/api/v1/sinks").await;
    assert_eq!(listed["sinks"][0]["id"], hook.id, "it is the organisation's");
    let seq = server.happen("acme", "a").await;
    receiver.wait_for(&[seq]).await;
    assert_eq!(receiver.count(), 1, "nobody replayed it");
}

#[tokio::test]
async fn an_organisation_may_have_so_many_webhooks() {
    let mut setup = Setup::default();
    setup.bus.webhooks.per_organisation_max = 2;
    let (server, receiver) = (setup.start().await, Receiver::start().await);
    let create = async |who: &str, name: &str| {
        let body = json!({"name": name, "url": receiver.url()});
        server.post(who, "/api/v1/sinks", body).await
    };
    let first = server.webhook("alice", "a", &receiver.url(), json!({})).await;
    let (status, body) = create("bob", "a").await;
    assert_eq!(status, 409, "{body}");
    assert_eq!(body["error"]["message"], "name: there is a webhook `a` already");
    assert_eq!(create("bob", "b").await.0, 201);
    let (status, body) = create("alice", "c").await;
    assert_eq!(status, 409, "{body}");
    let message = &body["error"]["message"];
    assert_eq!(*message, "your organisation has 2 webhooks, and may not have more");
    assert_eq!(create("carol", "c").await.0, 201, "another organisation has its own");
    let path = format!("/api/v1/sinks/{}", first.id);
    assert_eq!(server.call("bob", Method::DELETE, &path, Value::Null).await.0, 200);
    assert_eq!(create("alice", "a").await.0, 201, "its place and its name are free");

    let mut setup = Setup::default();
    setup.bus.webhooks.per_organisation_max = 0;
    let server = setup.start().await;
    let body = json!({"name": "a", "url": receiver.url()});
    let (status, body) = server.post("alice", "/api/v1/sinks", body).await;
    assert_eq!(status, 403, "{body}");
}

/// One delivery per second, and a minute's worth of events.
#[tokio::test]
async fn the_rate_is_shared_by_an_organisations_webhooks_and_by_no_other() {
    let mut setup = Setup::default();
    setup.bus.webhooks.rate_per_organisation_max = 1;
    let begun = Instant::now();
    let server = setup.start().await;
    let (one, two, theirs) =
        (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    server.webhook("alice", "one", &one.url(), json!({})).await;
    server.webhook("bob", "two", &two.url(), json!({})).await;
    server.webhook("carol", "theirs", &theirs.url(), json!({})).await;
    for _ in 0..30 {
        server.happen("acme", "a").await;
    }
    one.wait(1).await;
    let seqs = [server.happen("globex", "b").await, server.happen("globex", "c").await];
    theirs.wait_for(&seqs).await;
    until("both are served", async || one.count() > 0 && two.count() > 0).await;
    let sent = one.count() + two.count();
    let allowed = 1 + usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!(sent <= allowed, "{sent} within {:?}", begun.elapsed());
    assert!(sent < 60, "they were not limited");
}
