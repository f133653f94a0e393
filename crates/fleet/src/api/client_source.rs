//! The clients that the built-in issuer gives tokens to.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::Result;
use kernel::identity::{ClientGrant, ClientSource};
use serde_json::{Map, Value};

use crate::Fleet;
use crate::model::account;
use crate::model::instance::Phase;
use crate::model::sso::{AGENT_CLIENT_PREFIX, CANARY_CLIENT_PREFIX, claims};

pub struct FleetClientSource(pub Arc<Fleet>);

#[async_trait]
impl ClientSource for FleetClientSource {
    async fn client(&self, id: &str, secret: &str) -> Result<Option<ClientGrant>> {
        self.0.index.catch_up().await?;
        Ok(grant(&self.0, id, secret))
    }
}

fn grant(fleet: &Fleet, id: &str, secret: &str) -> Option<ClientGrant> {
    if let Some(account) = id.strip_prefix(account::CLIENT_PREFIX) {
        let account = fleet.index.account(account).filter(|a| a.phase == account::Phase::Ready)?;
        let verified = fleet.secrets.verify(id, account.spec.rotation, secret);
        return verified.then(|| org_grant(id, &account.org, &account.spec.account));
    }
    if let Some(cluster) = id.strip_prefix(AGENT_CLIENT_PREFIX) {
        let cluster = fleet.index.cluster(cluster)?;
        let verified = fleet.secrets.verify(id, cluster.spec.rotation, secret);
        return verified.then(|| ClientGrant {
            subject: subject(id),
            agent_of: Some(cluster.id.clone()),
            ..ClientGrant::default()
        });
    }
    let instance = id.strip_prefix(CANARY_CLIENT_PREFIX)?;
    let catalogue = fleet.catalogue();
    let mut kinds = catalogue.kinds.values().filter(|kind| kind.file.sso.canary);
    let row = kinds.find_map(|kind| fleet.index.get(kind.name(), instance))?;
    let instance = &row.instance;
    let verified = instance.phase != Phase::Deleting && fleet.secrets.verify(id, 0, secret);
    verified.then(|| org_grant(id, &instance.org, &instance.spec.account))
}

/// The name that Keycloak gives a client's user.
fn subject(id: &str) -> String {
    format!("service-account-{id}")
}

/// The grant of a client that belongs to an organisation.
fn org_grant(id: &str, org: &str, account: &str) -> ClientGrant {
    let claims = claims(org, account).map(|(name, value)| (name, Value::String(value)));
    ClientGrant {
        subject: subject(id),
        org: org.to_owned(),
        claims: claims.collect::<Map<_, _>>(),
        ..ClientGrant::default()
    }
}
