//! A simulated agent of a data plane: it does at once what is desired, or what a test says.

use serde_json::{Map, Value, json};

use crate::stage::{Answer, Api, Stage, eventually};

pub struct Agent<'s> {
    stage: &'s Stage,
    api: Api,
    /// Whose token it shows.
    who: &'static str,
    cluster: &'static str,
    /// What it reports about a desired instance; `None`: it does not report it.
    says: Says<'s>,
}

type Says<'s> = Box<dyn Fn(&Value) -> Option<Value> + Send + Sync + 's>;

impl<'s> Agent<'s> {
    pub fn new(stage: &'s Stage, api: Api, who: &'static str, cluster: &'static str) -> Agent<'s> {
        Agent { stage, api, who, cluster, says: Box::new(|item| Some(obedient(item))) }
    }

    /// Says something else.
    pub fn saying(
        mut self,
        says: impl Fn(&Value) -> Option<Value> + Send + Sync + 's,
    ) -> Agent<'s> {
        self.says = Box::new(says);
        self
    }

    /// Whose token it shows.
    pub fn who(&self) -> &str {
        self.who
    }

    pub fn path(&self, rest: &str) -> String {
        format!("{}/agent-clusters/{}{rest}", self.api.prefix, self.cluster)
    }

    pub async fn list(&self) -> Answer {
        let answer = self.stage.get(self.who, &self.path(&format!("/{}", self.api.plural))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer
    }

    /// Reports the status of instances.
    pub async fn report(&self, statuses: &Value) -> Answer {
        let path = self.path(&format!("/{}/status", self.api.plural));
        self.stage.call(self.who, "PUT", &path, statuses).await
    }

    /// One round: lists, and reports on everything.
    pub async fn round(&self) {
        let list = self.list().await;
        let mut statuses = Map::new();
        for item in list.items() {
            if let Some(says) = (self.says)(item) {
                statuses.insert(item["id"].as_str().expect("an id").into(), says);
            }
        }
        if !statuses.is_empty() {
            let answer = self.report(&Value::Object(statuses)).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
    }

    /// Goes on until an instance has a status; `gone` when it is deleted.
    pub async fn until(&self, id: &str, status: &str) {
        let what = format!("{} {id} is {status}", self.api.name);
        eventually(&what, async || {
            if self.stage.status(self.api, id).await == status {
                return true;
            }
            self.round().await;
            self.stage.status(self.api, id).await == status
        })
        .await;
    }

    /// Waits until it gets an instance.
    pub async fn until_listed(&self, id: &str) {
        let listed = async || self.list().await.items().iter().any(|item| item["id"] == id);
        eventually("the agent gets the instance", listed).await;
    }

    pub async fn make_ready(&self, id: &str) {
        self.until(id, "ready").await;
    }

    pub async fn make_gone(&self, id: &str) {
        self.until(id, "gone").await;
    }
}

/// What an agent reports that did what was desired.
pub fn obedient(item: &Value) -> Value {
    let spec = &item["spec"];
    let suspended = item["metadata"]["labels"]["bf2.org/suspended"] == "true";
    let (status, reason) = match (spec["deleted"] == true, suspended) {
        (true, _) => ("False", "Deleted"),
        (false, true) => ("False", "Suspended"),
        (false, false) => ("True", ""),
    };
    let host = spec["endpoint"]["bootstrapServerHost"].as_str().unwrap_or_default();
    let route = |name: &str, prefix: &str| json!({ "name": name, "prefix": prefix, "router": "router-1.apps.c1.example.com" });
    json!({
        "conditions": [{ "type": "Ready", "status": status, "reason": reason, "message": "" }],
        "capacity": spec["capacity"],
        "versions": spec["versions"],
        "routes": [
            route("bootstrap", ""),
            route("admin-server", "admin-server"),
            route("broker-0", "broker-0"),
        ],
        "adminServerURI": format!("https://admin-server-{host}"),
    })
}
