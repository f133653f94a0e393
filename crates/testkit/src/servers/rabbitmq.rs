//! RabbitMQ: a virtual host for each test, and a user with rights only there.

use lapin::{Connection, ConnectionProperties};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{Instance, http, unique};

pub struct RabbitMq {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn rabbitmq() -> Option<RabbitMq> {
    Instance::shared("rabbitmq").map(|server| RabbitMq { server })
}

impl RabbitMq {
    pub async fn private(&self) -> RabbitMq {
        RabbitMq { server: self.server.private(&[]).await }
    }

    /// A request to the management API, such as to `queues/{vhost}`, as its administrator.
    pub fn management(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/api/{path}", self.server.get("management"));
        let (user, password) = (self.server.get("user"), self.server.get("password"));
        http::client().request(method, url).basic_auth(user, Some(password))
    }

    async fn put(&self, path: &str, body: &Value) {
        http::answer(self.management(Method::PUT, path).json(body)).await;
    }

    pub async fn vhost(&self) -> VHost {
        let name = unique();
        self.put(&format!("vhosts/{name}"), &json!({})).await;
        self.put(&format!("users/{name}"), &json!({"password": name, "tags": ""})).await;
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        self.put(&format!("permissions/{name}/{name}"), &all).await;
        let (_, host) = self.server.get("").rsplit_once('@').expect("the address has a user");
        let (host, _) = host.split_once('/').expect("the address has a virtual host");
        VHost { url: format!("amqp://{name}:{name}@{host}/{name}"), name }
    }
}

/// Goes away with its server.
pub struct VHost {
    pub name: String,
    /// With the credentials of a user who may do everything here and nothing elsewhere.
    pub url: String,
}

impl VHost {
    pub async fn connect(&self) -> Connection {
        connect(&self.url).await.expect("the test RabbitMQ answers")
    }
}

pub async fn connect(url: &str) -> lapin::Result<Connection> {
    Connection::connect(url, ConnectionProperties::default()).await
}
