//! Connections to a data source: they are kept, not opened for each query.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use advisor::model::datasource::Datasource;
use jiff::Timestamp;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::{checked, client, request};
use crate::support::small::Small;
use crate::support::stand_in::StandIn;

/// Passes connections on, and counts them. It ends with the runtime of its test.
async fn counted(address: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let opened = count.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            opened.fetch_add(1, Ordering::SeqCst);
            let mut server = TcpStream::connect(&address).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    (url, count)
}

#[tokio::test]
async fn the_queries_of_all_shards_share_a_few_connections() {
    let small = Small::of(600);
    let server = StandIn::new(move |seen| small.reply(seen)).await;
    let (url, opened) = counted(server.url.replace("http://", "")).await;
    let source = Datasource { concurrency_max: 4, ..Datasource::at(&url) };
    let found = checked(&client(&source), &request(json!({})), Timestamp::now()).await.unwrap();
    assert_eq!((found.advice.len(), found.queries), (600, 1 + 3 + 1 + 3 * 20));
    let opened = opened.load(Ordering::SeqCst);
    // As many as queries at once, and one that was slower than an answer at times.
    assert!((1..=8).contains(&opened), "{opened} connections for {} queries", found.queries);
}
