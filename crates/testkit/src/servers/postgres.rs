//! PostgreSQL: a database for each test.

use tokio_postgres::{Client, NoTls};

use super::{Instance, unique};

pub struct Postgres {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn postgres() -> Option<Postgres> {
    Instance::shared("postgres").map(|server| Postgres { server })
}

impl Postgres {
    pub async fn private(&self) -> Postgres {
        Postgres { server: self.server.private(&[]).await }
    }

    /// One whose disk can be filled; `None` without root's rights.
    pub async fn private_on_a_small_disk(&self) -> Option<Postgres> {
        let server = self.server.private(&[super::small_disk("192")?]).await;
        Some(Postgres { server })
    }

    /// The server's own database, as its superuser.
    pub fn url(&self) -> &str {
        self.server.get("")
    }

    pub async fn database(&self) -> Database {
        let name = unique();
        let client = connect(self.url()).await;
        let sql = format!("CREATE DATABASE {name}");
        client.batch_execute(&sql).await.expect("creating a test database");
        let (base, _) = self.url().rsplit_once('/').expect("the address names a database");
        Database { url: format!("{base}/{name}"), name, server: self.url().into() }
    }
}

/// Dropped with the value.
pub struct Database {
    url: String,
    name: String,
    server: String,
}

impl Database {
    /// On the shared server; `None` skips the test.
    pub async fn create() -> Option<Database> {
        Some(postgres()?.database().await)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A second connection, to inspect or to interfere.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let drop_it = async move {
            // A private server may be down at the end of its test.
            let Ok((client, connection)) = tokio_postgres::connect(&server, NoTls).await else {
                return;
            };
            tokio::spawn(connection);
            let _ = client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
        };
        super::at_the_end(drop_it);
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.expect("the test PostgreSQL answers");
    tokio::spawn(connection);
    client
}
