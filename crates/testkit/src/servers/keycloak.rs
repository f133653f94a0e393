//! Keycloak: our realm to read tokens from, and a copy of it for a test that changes something.
//!
//! In it are `alice`, `bob` (an admin of their organisation `acme`), `carol` (of `globex`), `dave`
//! (of none), and `reader`, `writer` and `admin`, who have our admin roles; and the programs
//! `robot` (of `acme`), `kas-fleetshard-agent-cluster-1` and `old-agent` (of `cluster-2`), and
//! `fleet-manager`, which may manage clients and users.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use servers::kinds::keycloak::REALM;

use super::{Instance, http, unique};

pub struct Keycloak {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn keycloak() -> Option<Keycloak> {
    Instance::shared("keycloak").map(|server| Keycloak { server })
}

impl Keycloak {
    pub async fn private(&self) -> Keycloak {
        Keycloak { server: self.server.private(&[]).await }
    }

    /// Everybody's: not to be changed.
    pub fn realm(&self) -> Realm {
        self.realm_named(self.server.get("realm"))
    }

    fn realm_named(&self, name: &str) -> Realm {
        Realm { address: self.server.get("").into(), name: name.into() }
    }

    /// A copy of it for this test alone. It goes away with its server.
    pub async fn own_realm(&self) -> Realm {
        let name = unique();
        let mut realm: Value = serde_json::from_str(REALM).expect("JSON");
        realm["realm"] = name.as_str().into();
        let master = self.realm_named("master");
        let form = [
            ("grant_type", "password"),
            ("client_id", "admin-cli"),
            ("username", self.server.get("admin_user")),
            ("password", self.server.get("admin_password")),
        ];
        let token = access_token(master.grant(&form).await);
        let url = format!("{}/admin/realms", master.address);
        http::answer(http::client().post(url).bearer_auth(token).json(&realm)).await;
        self.realm_named(&name)
    }
}

pub struct Realm {
    address: String,
    pub name: String,
}

impl Realm {
    /// As its tokens name it.
    pub fn issuer(&self) -> String {
        format!("{}/realms/{}", self.address, self.name)
    }

    /// An access token of a user. It is good for a minute.
    pub async fn token(&self, user: &str) -> String {
        access_token(self.sign_in("mainstay-cli", user).await)
    }

    /// One that is good for two seconds.
    pub async fn brief_token(&self, user: &str) -> String {
        access_token(self.sign_in("mainstay-cli-brief", user).await)
    }

    /// All tokens that a user gets who signs in with this client.
    pub async fn sign_in(&self, client: &str, user: &str) -> (StatusCode, Value) {
        let password = format!("{user}-secret");
        let form = [
            ("grant_type", "password"),
            ("client_id", client),
            ("username", user),
            ("password", &password),
        ];
        self.grant(&form).await
    }

    /// An access token of a program of this realm.
    pub async fn program_token(&self, client: &str) -> String {
        access_token(self.sign_in_program(client, &format!("{client}-secret")).await)
    }

    pub async fn sign_in_program(&self, client: &str, secret: &str) -> (StatusCode, Value) {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", client),
            ("client_secret", secret),
        ];
        self.grant(&form).await
    }

    /// Whatever the token endpoint answers.
    pub async fn grant(&self, form: &[(&str, &str)]) -> (StatusCode, Value) {
        let url = format!("{}/protocol/openid-connect/token", self.issuer());
        http::try_answer(http::client().post(url).form(form)).await
    }

    /// A request to the admin API, such as to `clients`, as the program that manages this realm's
    /// clients and users.
    pub async fn admin(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/admin/realms/{}/{path}", self.address, self.name);
        http::client().request(method, url).bearer_auth(self.program_token("fleet-manager").await)
    }
}

fn access_token((status, body): (StatusCode, Value)) -> String {
    let token = body["access_token"].as_str();
    token.unwrap_or_else(|| panic!("no token: {status}: {body}")).to_owned()
}
