//! The queue and the audit log: what an admin sees and does, once.

use kernel::change::{Change, Wake};
use kernel::log::{AuditCheck, AuditEntry, LogHeads};
use kernel::{Key, Lane, Timestamp};

use axum::body::Body as Raw;
use testkit::on_every_store;
use testkit::stores::Fresh;

use crate::server::{TestResponse, TestServer};

on_every_store!(
    the_queue_is_listed_with_its_counts,
    work_is_retried_paused_and_resumed_and_each_is_in_the_audit_log,
    a_pause_needs_no_reason_but_an_invalid_one_is_rejected,
    the_same_command_is_carried_out_once_and_gets_the_same_response,
    a_client_can_verify_the_audit_log_page_by_page,
);

async fn queued(fresh: &Fresh) -> TestServer {
    let server = TestServer::on(fresh);
    server.create("a", "acme", "alice", "new").await;
    server.create("b", "globex", "carol", "new").await;
    let wake = |id: &str, org: &str, due: Timestamp| Wake {
        key: Key::new("widget", id),
        org: org.into(),
        lane: Lane::Normal,
        due,
    };
    let later = Timestamp(server.now().0 + 3_600_000);
    let wakes = vec![wake("a", "acme", server.now()), wake("b", "globex", later)];
    server.commit(Change { wakes, ..Change::default() }).await;
    server
}

fn keys(response: &TestResponse) -> Vec<&str> {
    let rows = response.body["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["key"].as_str().unwrap()).collect()
}

async fn the_queue_is_listed_with_its_counts(fresh: &Fresh) {
    let server = queued(fresh).await;
    let get = async |query: &str| server.get("reader", &format!("/api/v1/work{query}")).await;
    let all = get("").await;
    assert_eq!(keys(&all).len(), 2);
    assert_eq!(all.body["counts"].as_array().unwrap().len(), 2, "{}", all.text);
    assert_eq!(keys(&get("?state=waiting").await), ["widget/b"]);
    assert_eq!(keys(&get("?org=acme").await), ["widget/a"]);
    assert_eq!(keys(&get("?key=widget/b&paused=false").await), ["widget/b"]);
    assert_eq!(keys(&get("?failing=true").await), Vec::<&str>::new());
    let wrong = get("?state=broken").await;
    assert_eq!((wrong.status, wrong.error("field")), (400, "state"));
    let metrics = server.get("", "/metrics").await.text;
    let line = r#"queue_rows{kind="widget",state="waiting",paused="false",failing="false"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}

async fn work_is_retried_paused_and_resumed_and_each_is_in_the_audit_log(fresh: &Fresh) {
    let server = queued(fresh).await;
    let row = async || server.row("b").await;
    let post = async |act: &str, body: &str| {
        server.post("admin", &format!("/api/v1/work/widget/b/{act}"), body).await
    };
    let retried = post("retry", "").await;
    assert_eq!((retried.status, &retried.body["action"]), (202, &"retry".into()));
    assert_eq!((row().await.state, row().await.lane), (kernel::queue::State::Ready, Lane::Urgent));
    assert_eq!(post("resume", "").await.status, 409, "it is not paused");
    assert_eq!(post("pause", r#"{"reason":"new disk"}"#).await.status, 202);
    assert_eq!((row().await.paused, row().await.reason.as_str()), (true, "new disk"));
    let refused = post("retry", "").await;
    assert_eq!(refused.status, 409);
    assert!(refused.error("message").contains("resume it first"));
    assert_eq!(post("resume", "").await.status, 202);
    assert!(!row().await.paused);
    let missing = server.post("admin", "/api/v1/work/widget/none/retry", "").await;
    assert_eq!(missing.status, 404);
    let audit = server.get("reader", "/api/v1/audit").await;
    let entries = audit.body["entries"].as_array().unwrap();
    let actions: Vec<_> = entries.iter().map(|e| e["entry"]["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["work.resume", "work.pause", "work.retry"]);
    let pause = &entries[1]["entry"];
    assert_eq!((&pause["actor"], &pause["target"]), (&"admin".into(), &"widget/b".into()));
    assert_eq!((&pause["org"], &pause["after"]["reason"]), (&"globex".into(), &"new disk".into()));
    assert_eq!(pause["request_id"].as_str().unwrap().len(), 20);
}

async fn a_pause_needs_no_reason_but_an_invalid_one_is_rejected(fresh: &Fresh) {
    let server = queued(fresh).await;
    let path = "/api/v1/work/widget/a/pause";
    let bare = server.request("POST", "admin", path).body(Raw::empty()).unwrap();
    assert_eq!(server.send(bare).await.status, 202);
    assert_eq!(server.row("a").await.reason, "paused by admin");
    for (body, field) in [(r#"{"reason":""}"#, "reason"), (r#"{"why":"x"}"#, "why"), ("[", "body")]
    {
        let response = server.post("admin", path, body).await;
        assert_eq!((response.status, response.error("field")), (400, field), "{body}");
    }
}

async fn the_same_command_is_carried_out_once_and_gets_the_same_response(fresh: &Fresh) {
    let server = queued(fresh).await;
    let pause = async |key: &str, reason: &str| {
        let body = format!(r#"{{"reason":"{reason}"}}"#);
        let request = server.request("POST", "admin", "/api/v1/work/widget/a/pause");
        let request = request.header("content-type", "application/json");
        server.send(request.header("idempotency-key", key).body(Raw::from(body)).unwrap()).await
    };
    let first = pause("k1", "one").await;
    assert_eq!((first.status, first.header("idempotent-replay")), (202, ""));
    let again = pause("k1", "one").await;
    assert_eq!((again.status, again.header("idempotent-replay")), (202, "true"));
    assert_eq!(again.text, first.text);
    let other = pause("k1", "two").await;
    assert_eq!((other.status, other.error("code")), (409, "mismatch"));
    assert_eq!(pause("k2", "two").await.header("idempotent-replay"), "");
    assert_eq!(server.audit().await.len(), 2, "one for each that was carried out");
    assert_eq!(pause("a b", "x").await.error("field"), "idempotency-key");
}

async fn a_client_can_verify_the_audit_log_page_by_page(fresh: &Fresh) {
    let server = queued(fresh).await;
    for n in 0..7 {
        let act = if n % 2 == 0 { "pause" } else { "resume" };
        let body = if act == "pause" { r#"{"reason":"x"}"# } else { "" };
        let path = format!("/api/v1/work/widget/a/{act}");
        assert_eq!(server.post("admin", &path, body).await.status, 202);
    }
    let head = server.get("reader", "/api/v1/audit/head").await;
    let head: LogHeads = serde_json::from_str(&head.text).unwrap();
    assert_eq!(head.audit_seq, 7);
    #[derive(serde::Deserialize)]
    struct Page {
        entries: Vec<AuditEntry>,
        next: Option<i64>,
    }
    let (mut check, mut after) = (AuditCheck::default(), Some(0));
    while let Some(from) = after {
        let page = server.get("reader", &format!("/api/v1/audit?limit=3&after={from}")).await;
        let page: Page = serde_json::from_str(&page.text).unwrap();
        page.entries.iter().for_each(|entry| check.next(entry).unwrap());
        after = page.next;
    }
    check.end(&head).unwrap();
    let newest = server.get("reader", "/api/v1/audit?limit=2&actor=admin").await.body;
    assert_eq!((&newest["entries"][0]["seq"], &newest["next"]), (&7.into(), &6.into()));
    let older = server.get("reader", "/api/v1/audit?limit=2&before=6").await.body;
    assert_eq!(older["entries"][0]["seq"], 5);
    let both = server.get("reader", "/api/v1/audit?after=1&before=5").await;
    assert_eq!((both.status, both.error("field")), (400, "before"));
}
