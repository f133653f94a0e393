//! The external systems: SSO and DNS, as one process reaches them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use fleet::model::dns::Record;
use fleet::model::sso::{Client, Endpoints};
use fleet::ports::dns::Dns;
use fleet::ports::sso::Sso;
use kernel::{Error, Result};
use parking_lot::Mutex;
use testkit::sim::flaky::Flaky;

/// The content of the external systems.
#[derive(Default)]
pub struct Outside {
    /// Secrets by client.
    pub clients: Mutex<BTreeMap<String, String>>,
    pub records: Mutex<BTreeMap<String, String>>,
    /// The instances that run on each cluster.
    pub running: Mutex<BTreeSet<(String, String)>>,
}

/// The external systems from one process: slow, failing, losing responses.
pub struct Connection {
    pub sim: Arc<super::Sim>,
    pub process: Arc<Flaky>,
}

impl Connection {
    async fn before(&self) -> Result<()> {
        self.process.pass().await;
        tokio::time::sleep(self.sim.world.millis(0, 300)).await;
        self.process.fail_sometimes(0.05)
    }

    /// The call took effect, but the caller may not learn of it.
    async fn after(&self) -> Result<()> {
        self.process.pass().await;
        if self.sim.world.unlucky(0.05) {
            return Err(Error::unavailable("the other system", "the response was lost"));
        }
        Ok(())
    }
}

#[async_trait]
impl Sso for Connection {
    async fn ensure(&self, client: &Client) -> Result<()> {
        self.before().await?;
        self.sim.outside.clients.lock().insert(client.id.clone(), client.secret.clone());
        self.after().await
    }

    async fn matches(&self, client: &Client) -> Result<bool> {
        self.before().await?;
        Ok(self.sim.outside.clients.lock().get(&client.id) == Some(&client.secret))
    }

    async fn remove(&self, id: &str) -> Result<()> {
        self.before().await?;
        self.sim.outside.clients.lock().remove(id);
        self.after().await
    }

    fn endpoints(&self) -> Endpoints {
        let url = "http://sso".to_owned();
        Endpoints {
            name: "sim".into(),
            base_url: url.clone(),
            token_url: url.clone(),
            jwks: url.clone(),
            issuer: url,
        }
    }
}

#[async_trait]
impl Dns for Connection {
    async fn upsert(&self, records: &[Record]) -> Result<String> {
        self.before().await?;
        let pairs = records.iter().map(|record| (record.name.clone(), record.target.clone()));
        self.sim.outside.records.lock().extend(pairs);
        self.after().await?;
        Ok("change".into())
    }

    async fn in_sync(&self, _: &str) -> Result<bool> {
        self.before().await?;
        Ok(!self.sim.world.unlucky(0.5))
    }

    async fn remove(&self, records: &[Record]) -> Result<()> {
        self.before().await?;
        for record in records {
            self.sim.outside.records.lock().remove(&record.name);
        }
        self.after().await
    }

    async fn find(&self, names: &[String]) -> Result<Vec<Record>> {
        self.before().await?;
        let existing = self.sim.outside.records.lock();
        let found = names.iter().filter_map(|name| {
            Some(Record { name: name.clone(), target: existing.get(name)?.clone() })
        });
        Ok(found.collect())
    }
}
