//! RabbitMQ: a virtual host for each test, and a user with rights only there.

use lapin::{Connection, ConnectionProperties};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{Instance, blocking, http, unique};

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

    /// `rabbitmqctl` on a server of the test's own; what it printed.
    pub async fn control(&self, arguments: &[&str]) -> String {
        let place = self.server.place();
        let arguments: Vec<String> = arguments.iter().map(|one| (*one).into()).collect();
        blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            servers::kinds::rabbitmq::control(&place, &arguments)
        })
        .await
    }

    /// Raises an alarm: it takes no messages until [`RabbitMq::calm`]. On a server of the test's own.
    pub async fn alarm(&self, alarm: Alarm) {
        match alarm {
            Alarm::Memory => self.control(&["set_vm_memory_high_watermark", "absolute", "1MB"]),
            // More than any disk has.
            Alarm::Disk => self.control(&["set_disk_free_limit", "9000000GB"]),
        }
        .await;
    }

    pub async fn calm(&self, alarm: Alarm) {
        match alarm {
            Alarm::Memory => self.control(&["set_vm_memory_high_watermark", "0.4"]),
            Alarm::Disk => self.control(&["set_disk_free_limit", "1MB"]),
        }
        .await;
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
        // Nothing else contains it, so that outputs can be searched for it.
        let password = format!("{name}-password");
        self.put(&format!("vhosts/{name}"), &json!({})).await;
        self.put(&format!("users/{name}"), &json!({"password": password, "tags": ""})).await;
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        self.put(&format!("permissions/{name}/{name}"), &all).await;
        let (_, host) = self.server.get("").rsplit_once('@').expect("the address has a user");
        let (host, _) = host.split_once('/').expect("the address has a virtual host");
        VHost { url: format!("amqp://{name}:{password}@{host}/{name}"), name, password }
    }
}

/// Why RabbitMQ takes no messages.
#[derive(Debug, Clone, Copy)]
pub enum Alarm {
    Memory,
    Disk,
}

/// Goes away with its server.
pub struct VHost {
    /// Also of its user.
    pub name: String,
    pub password: String,
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
