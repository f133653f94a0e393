//! Consul: for each test a prefix of keys, and a token that is good for nothing else.

use reqwest::Method;
use serde_json::json;

use super::outbound::Http;
use super::{Instance, unique};

pub struct Consul {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn consul() -> Option<Consul> {
    Instance::shared("consul").map(|server| Consul { server })
}

impl Consul {
    pub async fn private(&self) -> Consul {
        Consul { server: self.server.private(&[]).await }
    }

    pub fn url(&self) -> &str {
        self.server.get("")
    }

    /// As one who may do everything.
    pub fn admin(&self) -> Http {
        Http::new(self.url(), "X-Consul-Token", self.server.get("token"))
    }

    pub async fn prefix(&self) -> Prefix {
        let (name, admin) = (unique(), self.admin());
        let prefix = format!("{name}/");
        let rules = format!(
            "key_prefix \"{prefix}\" {{ policy = \"write\" }}\n\
             session_prefix \"\" {{ policy = \"write\" }}"
        );
        let policy = json!({"Name": name, "Rules": rules});
        admin.expect(Method::PUT, "/v1/acl/policy", policy).await;
        let token = json!({"Policies": [{"Name": name}]});
        let token = admin.expect(Method::PUT, "/v1/acl/token", token).await;
        let token = token["SecretID"].as_str().expect("a token");
        Prefix { prefix, http: admin.with_token(token) }
    }
}

pub struct Prefix {
    /// With a slash at its end.
    pub prefix: String,
    /// As one who may read and write below the prefix, and hold sessions.
    pub http: Http,
}
