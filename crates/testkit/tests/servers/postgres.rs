//! PostgreSQL through tokio-postgres.

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
    let waits = tokio::time::timeout(std::time::Duration::from_millis(200), ask).await;
    assert!(waits.is_err(), "it answers although it stands still");
    own.server.resume().await;
    let row = client.query_one("SELECT 2", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 2, "on the same connection");
}
