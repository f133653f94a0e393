//! PostgreSQL through tokio-postgres.

use std::time::Duration;

use testkit::chaos::Proxy;
use tokio_postgres::NoTls;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_there_after_a_kill() {
    let Some(shared) = testkit::postgres() else { return };
    let own = shared.private().await;
    let database = own.database().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").await.unwrap();
    own.server.kill().await;
    assert!(tokio_postgres::connect(database.url(), NoTls).await.is_err(), "it is gone");
    own.server.start().await;
    let row = database.client().await.query_one("SELECT n FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stands_still_goes_on_where_it_was() {
    let Some(shared) = testkit::postgres() else { return };
    let own = shared.private().await;
    let database = own.database().await;
    let client = database.client().await;
    own.server.pause().await;
    let ask = async { client.query_one("SELECT 1", &[]).await };
    let waits = tokio::time::timeout(Duration::from_millis(200), ask).await;
    assert!(waits.is_err(), "it answers although it stands still");
    own.server.resume().await;
    let row = client.query_one("SELECT 2", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 2, "on the same connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_it_refuses_and_goes_on_when_there_is_room() {
    let Some(shared) = testkit::postgres() else { return };
    let Some(own) = shared.private_on_a_small_disk().await else { return };
    let database = own.database().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE t (words text)").await.unwrap();
    let full = own.server.fill();
    let much = "INSERT INTO t SELECT repeat(md5(n::text), 200) FROM generate_series(1, 20000) n";
    let error = client.batch_execute(much).await.unwrap_err();
    drop(full);
    assert!(format!("{error:?}").contains("No space left on device"), "{error:?}");
    // What is left of its log may have been too little: then it has started again by itself.
    own.server.stop().await;
    own.server.start().await;
    database.client().await.batch_execute("INSERT INTO t VALUES ('room')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_in_front_cuts_it_off_and_lets_it_back() {
    let Some(shared) = testkit::postgres() else { return };
    let database = shared.database().await;
    let address = database.url().split(['@', '/']).nth(3).unwrap();
    let proxy = Proxy::to(address).await;
    let url = database.url().replace(address, &proxy.address().to_string());
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let client = connect().await;
    client.batch_execute("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").await.unwrap();
    proxy.reset();
    let cut = async { client.query_one("SELECT n FROM t", &[]).await };
    assert!(tokio::time::timeout(Duration::from_secs(60), cut).await.unwrap().is_err());
    let row = connect().await.query_one("SELECT n FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 7);
}
