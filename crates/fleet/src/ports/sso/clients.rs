//! The clients of service accounts, agents and canaries, derived from the objects; their secrets are
//! derived from one key.

use std::collections::BTreeMap;

use super::Secrets;
use crate::model::account::Account;
use crate::model::cluster::Cluster;
use crate::model::instance::Instance;
use crate::model::sso::{Client, agent_client_id, canary_client_id, claims};

pub fn service_account_client(secrets: &Secrets, account: &Account) -> Client {
    let created_at = ("created_at".to_owned(), account.created_at.to_string());
    Client {
        id: account.spec.client_id.clone(),
        secret: secrets.derive(&account.spec.client_id, account.spec.rotation),
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

/// The client of a cluster's agent. Its id contains the cluster's.
pub fn agent_client(secrets: &Secrets, cluster: &Cluster) -> Client {
    let id = agent_client_id(&cluster.id);
    Client {
        secret: secrets.derive(&id, cluster.spec.rotation),
        name: id.clone(),
        description: format!("the agent of cluster {}", cluster.id),
        org: cluster.org.clone(),
        id,
        ..Client::default()
    }
}

/// The client with which an instance is probed.
pub fn canary_client(secrets: &Secrets, instance: &Instance) -> Client {
    let id = canary_client_id(&instance.id);
    Client {
        secret: secrets.derive(&id, 0),
        name: id.clone(),
        description: format!("checks of {}/{}", instance.kind, instance.id),
        org: instance.org.clone(),
        owner: instance.owner.clone(),
        account: instance.spec.account.clone(),
        claims: [("rh-org-id".to_owned(), instance.org.clone())].into(),
        id,
        ..Client::default()
    }
}
