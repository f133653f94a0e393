//! Two servers on one PostgreSQL: a commit at one reaches the other at once.
//! All that a timer would do takes longer than these tests wait.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as Raw;
use futures::FutureExt as _;
use kernel::change::{Change, Wake};
use kernel::driver::{AnyWorker, Attempt, Config, Driver, Requeue};
use kernel::{Ambient, Key, Lane, Result};
use testkit::stores::{self, Fresh};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::events::read;
use crate::server::{TestServer, eventually};

/// Less than any timer that would notice a change without a hint.
const AT_ONCE: Duration = Duration::from_secs(8);

/// The first holds the database.
async fn two() -> Option<(Fresh, TestServer, TestServer)> {
    let fresh = stores::postgres().await?;
    let other = fresh.replica().await.expect("a second connection");
    let (here, there) = (
        TestServer::on(&fresh),
        TestServer::over(other, kernel::http::Config::default(), Ambient::system()),
    );
    here.create("a", "acme", "alice", "new").await;
    Some((fresh, here, there))
}

/// The number of open requests of a server, without the one that reads it.
async fn open(server: &TestServer) -> usize {
    let metrics = server.get("", "/metrics").await.text;
    let line = metrics.lines().find_map(|line| line.strip_prefix("mainstay_http_in_flight "));
    line.and_then(|count| count.parse::<usize>().ok()).expect("a number") - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_at_one_ends_a_wait_and_a_long_poll_at_the_other() {
    let Some((_fresh, here, there)) = two().await else { return };
    let there = Arc::new(there);
    let ask = |path: &'static str| {
        let there = there.clone();
        tokio::spawn(async move { there.get("alice", path).await })
    };
    let wait = ask("/api/v1/objects/widget/a?wait_phase=done&timeout_s=60");
    let poll = ask("/api/v1/events?after=1&wait_s=60");
    eventually("both wait", async || open(&there).await == 2).await;
    here.transition("a", "done").await;
    let wait = tokio::time::timeout(AT_ONCE, wait).await.expect("at once").unwrap();
    assert_eq!(wait.body["phase"], "done");
    let poll = tokio::time::timeout(AT_ONCE, poll).await.expect("at once").unwrap();
    assert_eq!(poll.body["events"][0]["type"], "mainstay.widget.done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_at_one_reaches_a_stream_at_the_other() {
    let Some((_fresh, here, there)) = two().await else { return };
    let request = there.request("GET", "alice", "/api/v1/events").header("last-event-id", "1");
    let request = request.header("accept", "text/event-stream").body(Raw::empty()).unwrap();
    let response = there.router.clone().oneshot(request).await.unwrap();
    let mut stream = response.into_body().into_data_stream();
    for phase in ["one", "two", "three"] {
        here.transition("a", phase).await;
        let text = tokio::time::timeout(AT_ONCE, read(&mut stream, 1)).await.expect("at once");
        assert!(text.contains(&format!("event: mainstay.widget.{phase}\n")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_carried_out_once_across_replicas() {
    let Some((_fresh, here, there)) = two().await else { return };
    let pause = async |server: &TestServer| {
        let request = server.request("POST", "admin", "/api/v1/work/widget/a/pause");
        let request = request.header("idempotency-key", "k1").body(Raw::empty()).unwrap();
        server.send(request).await
    };
    let (first, second) = tokio::join!(pause(&here), pause(&there));
    assert_eq!((first.status, second.status), (202, 202));
    assert_eq!(first.text, second.text);
    let replays = [&first, &second].map(|response| response.header("idempotent-replay") == "true");
    assert_eq!(replays.iter().filter(|replay| **replay).count(), 1, "{replays:?}");
    assert_eq!(here.audit().await.len(), 1);
}

struct Counter(tokio::sync::mpsc::UnboundedSender<Key>);

#[async_trait::async_trait]
impl AnyWorker for Counter {
    fn kind(&self) -> &str {
        "widget"
    }

    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)> {
        self.0.send(attempt.object.key.clone()).expect("the test listens");
        Ok((Change::default(), Requeue::Never))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_at_one_starts_work_at_the_other() {
    let Some((_fresh, here, there)) = two().await else { return };
    let (looks, mut looked) = tokio::sync::mpsc::unbounded_channel();
    let driver = Driver {
        name: "there".into(),
        store: there.store.clone(),
        ambient: there.app.ambient.clone(),
        workers: vec![Arc::new(Counter(looks))],
        config: Config::default(),
        observe: Arc::new(|_, _, _, _| {}),
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(driver.run(stop.clone()));
    for _ in 0..5 {
        let (key, due) = (Key::new("widget", "a"), here.now());
        let wake = Wake { key: key.clone(), org: "acme".into(), lane: Lane::Normal, due };
        here.commit(Change { wakes: vec![wake], ..Change::default() }).await;
        let found = tokio::time::timeout(AT_ONCE, looked.recv().map(Option::unwrap)).await;
        assert_eq!(found.expect("at once"), key);
        let queue = async || here.store.work(&Default::default(), 1).await.unwrap();
        eventually("it is settled", async || queue().await.is_empty()).await;
    }
    stop.cancel();
    running.await.unwrap();
}
