//! The programs that sign in: service accounts, agents of clusters, canaries of instances. What
//! they are follows from the objects, their secrets from one key, so that our own issuer knows
//! them and a Keycloak can be told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::Result;
use kernel::identity::{ClientGrant, ClientSource};
use serde_json::{Map, Value};

use crate::Fleet;
use crate::model::account::{self, Account};
use crate::model::cluster::Cluster;
use crate::model::instance::Status;
use crate::ports::sso::Client;

const AGENT: &str = "kas-fleetshard-agent-";
const ACCOUNT: &str = "srvc-acct-";
const CANARY: &str = "canary-";

/// The client that a cluster's agent signs in as.
pub fn agent_client(cluster: &str) -> String {
    format!("{AGENT}{cluster}")
}

/// What the tokens of an organisation's program say of it, beside what all tokens say.
fn claims(org: &str, account: &str) -> impl Iterator<Item = (String, String)> {
    let said = [("rh-org-id", org), ("rh-user-id", account)];
    let said = said.map(|(name, value)| (name.to_owned(), value.to_owned()));
    said.into_iter().filter(|(_, value)| !value.is_empty())
}

/// The client of a service account.
pub fn account(fleet: &Fleet, account: &Account) -> Client {
    let created_at = ("created_at".to_owned(), account.created_at.to_string());
    Client {
        id: account.spec.client_id.clone(),
        secret: fleet.secrets.of(&account.spec.client_id, account.spec.rotation),
        name: account.name.clone(),
        description: account.description.clone(),
        org: account.org.clone(),
        owner: account.owner.clone(),
        account: account.spec.account.clone(),
        attributes: BTreeMap::from([created_at]),
        roles: Vec::new(),
        claims: claims(&account.org, &account.spec.account).collect(),
    }
}

/// The client of a cluster's agent. Its id alone says of which cluster it is.
pub fn agent(fleet: &Fleet, cluster: &Cluster) -> Client {
    let id = agent_client(&cluster.id);
    Client {
        secret: fleet.secrets.of(&id, cluster.spec.rotation),
        name: id.clone(),
        description: format!("the agent of cluster {}", cluster.id),
        org: cluster.org.clone(),
        id,
        ..Client::default()
    }
}

/// What our own issuer asks who signs in.
pub struct Known(pub Arc<Fleet>);

#[async_trait]
impl ClientSource for Known {
    async fn client(&self, id: &str, secret: &str) -> Result<Option<ClientGrant>> {
        self.0.index.catch_up().await?;
        Ok(grant(&self.0, id, secret))
    }
}

fn grant(fleet: &Fleet, id: &str, secret: &str) -> Option<ClientGrant> {
    if let Some(account) = id.strip_prefix(ACCOUNT) {
        let account = fleet.index.account(account).filter(|a| a.phase == account::READY)?;
        let is = fleet.secrets.is(id, account.spec.rotation, secret);
        return is.then(|| program(id, &account.org, &account.spec.account));
    }
    if let Some(cluster) = id.strip_prefix(AGENT) {
        let cluster = fleet.index.cluster(cluster)?;
        let is = fleet.secrets.is(id, cluster.spec.rotation, secret);
        return is.then(|| ClientGrant {
            subject: subject(id),
            agent_of: Some(cluster.id.clone()),
            ..ClientGrant::default()
        });
    }
    let instance = id.strip_prefix(CANARY)?;
    let rules = fleet.rules();
    let mut kinds = rules.kinds.values().filter(|kind| kind.file.sso.canary);
    let row = kinds.find_map(|kind| fleet.index.get(kind.name(), instance))?;
    let instance = &row.instance;
    let is = instance.status != Status::Deleting && fleet.secrets.is(id, 0, secret);
    is.then(|| program(id, &instance.org, &instance.spec.account))
}

/// The name that a Keycloak would give it.
fn subject(id: &str) -> String {
    format!("service-account-{id}")
}

/// A program of an organisation.
fn program(id: &str, org: &str, account: &str) -> ClientGrant {
    let said = claims(org, account).map(|(name, value)| (name, Value::String(value)));
    ClientGrant {
        subject: subject(id),
        org: org.to_owned(),
        claims: said.collect::<Map<_, _>>(),
        ..ClientGrant::default()
    }
}
