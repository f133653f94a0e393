//! A database of its own for each test, on the PostgreSQL server that `cargo xtask test` started.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};

use crate::servers;

pub struct Database {
    url: String,
    name: String,
    server: String,
}

impl Database {
    /// `None`, and a line that says so, if there is no server and none is required.
    pub async fn create() -> Option<Database> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = servers::address("postgres")?;
        let name = format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let client = connect(&server).await;
        let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        client.batch_execute(&sql).await.expect("dropping an old test database");
        let sql = format!("CREATE DATABASE {name}");
        client.batch_execute(&sql).await.expect("creating a test database");
        let (base, _) = server.rsplit_once('/').expect("the address names a database");
        Some(Database { url: format!("{base}/{name}"), name, server })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection beside the store's, to look or to meddle.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let drop_it = async move {
            let client = connect(&server).await;
            let _ = client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
        };
        // A test's own runtime may be on its way out.
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(drop_it);
        };
        let _ = std::thread::spawn(run).join();
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.expect("the test PostgreSQL answers");
    tokio::spawn(connection);
    client
}
