//! Data sources: the recorded requests. `sources` has what the existing service lacks.

use testkit::stores;

use super::golden::Replay;
use crate::support::server::{Server, config};

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_data_sources_are_answered_as_they_were() {
    let fresh = stores::sqlite().await.unwrap();
    let config = config(&[
        ("prometheus-1", "http://127.0.0.1:59191"),
        ("prometheus-3", "http://127.0.0.1:59193"),
    ]);
    let server = Server::start(&fresh, &config).await;
    let mut replay = Replay::new(&server);
    replay.all(&["datasources", "datasources_badparam", "datasources_name"]).await;
    replay.finish(&[]);
    let unknown = server.get("/datasources?name=nope").await;
    let message = "Given datasource name - nope either does not exist or is not valid";
    assert_eq!((unknown.status, unknown.body["message"].as_str()), (400, Some(message)));
}
