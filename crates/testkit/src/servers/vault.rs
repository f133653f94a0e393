//! Vault: for each test a store of secrets (KV, version 2), and a role that sees nothing else.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::outbound::Http;
use super::{Instance, unique};

pub struct Vault {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn vault() -> Option<Vault> {
    Instance::shared("vault").map(|server| Vault { server })
}

impl Vault {
    pub async fn private(&self) -> Vault {
        Vault { server: self.server.private(&[]).await }
    }

    pub fn url(&self) -> &str {
        self.server.get("")
    }

    /// As one who may do everything.
    pub fn admin(&self) -> Http {
        Http::new(self.url(), "X-Vault-Token", self.server.get("token"))
    }

    pub async fn mount(&self) -> Mount {
        let (name, admin) = (unique(), self.admin());
        let kv = json!({"type": "kv", "options": {"version": "2"}});
        admin.expect(Method::POST, &format!("/v1/sys/mounts/{name}"), kv).await;
        // It refuses everything for a moment while it prepares itself.
        let begun = Instant::now();
        while admin.get(&format!("/v1/{name}/config")).await.expect("an answer").status != 200 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{name} is never ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let all = "[\"create\", \"read\", \"update\", \"patch\", \"delete\", \"list\"]";
        let policy = json!({"policy": format!("path \"{name}/*\" {{ capabilities = {all} }}")});
        admin.expect(Method::PUT, &format!("/v1/sys/policies/acl/{name}"), policy).await;
        let role = format!("/v1/auth/approle/role/{name}");
        let settings = json!({"token_policies": [name], "token_ttl": "1h"});
        admin.expect(Method::POST, &role, settings).await;
        let role_id = admin.expect(Method::GET, &format!("{role}/role-id"), Value::Null).await;
        let secret_id = admin.expect(Method::POST, &format!("{role}/secret-id"), json!({})).await;
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Mount {
            role_id: text(&role_id["data"]["role_id"]),
            secret_id: text(&secret_id["data"]["secret_id"]),
            name,
            admin,
        }
    }
}

pub struct Mount {
    pub name: String,
    /// With these an AppRole logs in.
    pub role_id: String,
    pub secret_id: String,
    admin: Http,
}

impl Mount {
    /// As one who may do everything in the mount and nothing elsewhere.
    pub async fn login(&self) -> Http {
        let role = json!({"role_id": self.role_id, "secret_id": self.secret_id});
        let nobody = self.admin.with_token("");
        let login = nobody.expect(Method::POST, "/v1/auth/approle/login", role).await;
        let token = login["auth"]["client_token"].as_str().expect("a token");
        nobody.with_token(token)
    }
}
