//! Clients in a Keycloak, version 26 or newer.

use async_trait::async_trait;
use kernel::outbound::Outbound;
use kernel::{Error, Result};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::admin::{self, Admin, SYSTEM};
use super::{Config, Sso};
use crate::model::sso::{Client, Endpoints};
use crate::ports::kubernetes::covers;

/// How often an attempt is repeated that met a concurrent creation or deletion.
const ATTEMPTS_MAX: u32 = 3;
const CLAIM: &str = "oidc-hardcoded-claim-mapper";

pub struct Keycloak {
    admin: Admin,
    endpoints: Endpoints,
}

#[derive(Serialize, Deserialize)]
struct Role {
    id: String,
    name: String,
}

impl Keycloak {
    pub fn new(config: &Config, outbound: &Outbound) -> Result<Keycloak> {
        let base_url = config.url.trim_end_matches('/').to_owned();
        let issuer = format!("{base_url}/realms/{}", config.realm);
        let endpoints = Endpoints {
            name: "mas_sso".into(),
            token_url: format!("{issuer}/protocol/openid-connect/token"),
            jwks: format!("{issuer}/protocol/openid-connect/certs"),
            issuer,
            base_url,
        };
        Ok(Keycloak { admin: Admin::new(config, outbound)?, endpoints })
    }

    /// Finds a client. Returns Keycloak's own id of it and its representation.
    async fn find(&self, client_id: &str) -> Result<Option<(String, Value)>> {
        let response = self.admin.get(&["clients"], &[("clientId", client_id)]).await?;
        let found: Vec<Value> = admin::json("clients", response).await?;
        let same = found.into_iter().find(|one| one["clientId"] == client_id);
        same.map(|one| match one["id"].as_str() {
            Some(id) => Ok((id.to_owned(), one)),
            None => Err(Error::unavailable(SYSTEM, "a client without an id")),
        })
        .transpose()
    }

    /// One attempt; `None` after a concurrent creation or deletion.
    async fn ensure_once(&self, client: &Client) -> Result<Option<()>> {
        let desired = representation(client);
        let id = match self.find(&client.id).await? {
            Some((id, found)) if has_desired(&found, &desired) => id,
            Some((id, _)) => {
                let response = self.admin.write(Method::PUT, &["clients", &id], &desired).await?;
                match response.status() {
                    status if status.is_success() => id,
                    StatusCode::NOT_FOUND => return Ok(None),
                    _ => return Err(admin::unexpected("changing a client", response).await),
                }
            }
            None => {
                let response = self.admin.write(Method::POST, &["clients"], &desired).await?;
                match response.status() {
                    StatusCode::CONFLICT => return Ok(None),
                    status if status.is_success() => match self.find(&client.id).await? {
                        Some((id, _)) => id,
                        None => return Ok(None),
                    },
                    _ => return Err(admin::unexpected("creating a client", response).await),
                }
            }
        };
        if client.roles.is_empty() {
            return Ok(Some(()));
        }
        let Some((user, missing)) = self.missing_roles(&id, client).await? else { return Ok(None) };
        if missing.is_empty() {
            return Ok(Some(()));
        }
        let mut roles = Vec::new();
        for name in missing {
            roles.push(self.role(name).await?);
        }
        let path = ["users", &user, "role-mappings", "realm"];
        let response = self.admin.write(Method::POST, &path, &json!(roles)).await?;
        match response.status() {
            status if status.is_success() => Ok(Some(())),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(admin::unexpected("giving roles", response).await),
        }
    }

    /// The client's service account user, and the roles that it lacks; `None` if it is gone.
    async fn missing_roles<'a>(
        &self,
        id: &str,
        client: &'a Client,
    ) -> Result<Option<(String, Vec<&'a String>)>> {
        let response = self.admin.get(&["clients", id, "service-account-user"], &[]).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let user: Value = admin::json("the user of a client", response).await?;
        let user = user["id"].as_str().unwrap_or_default().to_owned();
        let response = self.admin.get(&["users", &user, "role-mappings", "realm"], &[]).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let has: Vec<Role> = admin::json("the roles of a client", response).await?;
        let lacks = |name: &&String| !has.iter().any(|role| role.name == **name);
        Ok(Some((user, client.roles.iter().filter(lacks).collect())))
    }

    async fn role(&self, name: &str) -> Result<Role> {
        let response = self.admin.get(&["roles", name], &[]).await?;
        if response.status() == StatusCode::NOT_FOUND {
            let why = format!("the realm has no role {name}; create it there");
            return Err(Error::unavailable(SYSTEM, why));
        }
        admin::json("a role", response).await
    }
}

#[async_trait]
impl Sso for Keycloak {
    async fn ensure(&self, client: &Client) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if self.ensure_once(client).await?.is_some() {
                return Ok(());
            }
        }
        let why = format!("concurrent changes of the client {}", client.id);
        Err(Error::unavailable(SYSTEM, why))
    }

    async fn matches(&self, client: &Client) -> Result<bool> {
        let Some((id, found)) = self.find(&client.id).await? else { return Ok(false) };
        if !has_desired(&found, &representation(client)) {
            return Ok(false);
        }
        if client.roles.is_empty() {
            return Ok(true);
        }
        let missing = self.missing_roles(&id, client).await?;
        Ok(missing.is_some_and(|(_, missing)| missing.is_empty()))
    }

    async fn remove(&self, id: &str) -> Result<()> {
        let Some((id, _)) = self.find(id).await? else { return Ok(()) };
        let response = self.admin.delete(&["clients", &id]).await?;
        match response.status() {
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            _ => Err(admin::unexpected("deleting a client", response).await),
        }
    }

    fn endpoints(&self) -> Endpoints {
        self.endpoints.clone()
    }
}

/// The client as Keycloak's API represents it.
fn representation(client: &Client) -> Value {
    let mut attributes = client.attributes.clone();
    let owners =
        [("rh-org-id", &client.org), ("username", &client.owner), ("rh-user-id", &client.account)];
    for (name, value) in owners {
        attributes.entry(name.to_owned()).or_insert_with(|| value.clone());
    }
    let mut claims = client.claims.clone();
    // Keycloak's own mapper for it is one of a realm's defaults, which differ.
    claims.entry("clientId".into()).or_insert_with(|| client.id.clone());
    let mapper = |(name, value): (&String, &String)| {
        json!({
            "name": name,
            "protocol": "openid-connect",
            "protocolMapper": CLAIM,
            "config": {
                "claim.name": name,
                "claim.value": value,
                "jsonType.label": "String",
                "access.token.claim": "true",
            }
        })
    };
    json!({
        "clientId": client.id,
        "secret": client.secret,
        "name": client.name,
        "description": client.description,
        "enabled": true,
        "protocol": "openid-connect",
        "clientAuthenticatorType": "client-secret",
        "publicClient": false,
        "bearerOnly": false,
        "serviceAccountsEnabled": true,
        "standardFlowEnabled": false,
        "implicitFlowEnabled": false,
        "directAccessGrantsEnabled": false,
        "fullScopeAllowed": true,
        "attributes": attributes,
        "protocolMappers": claims.iter().map(mapper).collect::<Vec<Value>>(),
    })
}

/// Whether a client has everything that is desired. Keycloak adds attributes of its own, omits empty
/// values, and lists mappers in any order; some versions add mappers of other types.
fn has_desired(found: &Value, desired: &Value) -> bool {
    let mut found = found.clone();
    if let Some(mappers) = found.get_mut("protocolMappers").and_then(Value::as_array_mut) {
        mappers.retain(|mapper| mapper["protocolMapper"] == CLAIM);
    }
    covers(&found, desired)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn keycloaks_own_additions_and_omissions_are_not_drift_and_other_changes_are() {
        let claims = BTreeMap::from([("org".to_owned(), "acme".to_owned())]);
        let client = Client { id: "a".into(), secret: "s".into(), claims, ..Client::default() };
        let desired = representation(&client);
        let found = |path: &str, value: Value| {
            let mut found = desired.clone();
            *found.pointer_mut(path).unwrap() = value;
            found
        };
        let mappers = |change: fn(&mut Vec<Value>)| {
            let mut mappers = desired["protocolMappers"].as_array().unwrap().clone();
            change(&mut mappers);
            found("/protocolMappers", json!(mappers))
        };
        for same in [
            desired.clone(),
            found("/description", Value::Null),
            found("/attributes", json!({"own": "1"})),
            mappers(|mappers| mappers.reverse()),
            mappers(|mappers| mappers.push(json!({"protocolMapper": "another"}))),
        ] {
            assert!(has_desired(&same, &desired), "{same}");
        }
        for other in [
            json!({}),
            found("/secret", json!("t")),
            found("/enabled", json!(false)),
            found("/description", json!("by hand")),
            found("/attributes", json!({"rh-org-id": "globex"})),
            mappers(|mappers| drop(mappers.pop())),
            mappers(|mappers| mappers[0]["config"]["claim.value"] = json!("globex")),
            mappers(|mappers| mappers.push(json!({"protocolMapper": CLAIM, "name": "more"}))),
        ] {
            assert!(!has_desired(&other, &desired), "{other}");
        }
    }
}
