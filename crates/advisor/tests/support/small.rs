//! A cluster without a Prometheus: it knows the queries of a survey by their text, and answers them
//! with as little as a recommendation needs.

use serde_json::{Map, Value, json};

use super::stand_in::{Reply, Seen};

/// One workload for each container, of the same name.
#[derive(Debug, Clone)]
pub struct Small {
    pub namespace: &'static str,
    pub containers: Vec<String>,
    /// Of every metric.
    pub value: String,
    /// Containers of which nothing is measured.
    pub silent: Vec<String>,
    pub clock_ahead_s: i64,
}

impl Small {
    pub fn of(count: usize) -> Small {
        Small {
            namespace: "shop",
            containers: (0..count).map(|number| format!("c{number}")).collect(),
            value: "0.25".into(),
            silent: Vec::new(),
            clock_ahead_s: 0,
        }
    }

    pub fn experiment(&self, container: &str) -> String {
        format!("p|default|{}|{container}(deployment)|{container}", self.namespace)
    }

    /// The containers that a query is about.
    pub fn asked(&self, query: &str) -> Vec<&String> {
        let listed = query.split("container=~\"").nth(1).and_then(|rest| rest.split('"').next());
        let asked = |name: &&String| {
            listed.is_none_or(|listed| listed.split('|').any(|other| other == *name))
        };
        self.containers.iter().filter(asked).collect()
    }

    pub fn reply(&self, seen: &Seen) -> Reply {
        Reply::Json(self.answer(seen))
    }

    pub fn answer(&self, seen: &Seen) -> Value {
        let query = seen.query();
        let workload =
            |container: &&String| json!({ "workload": container, "workload_type": "deployment" });
        let series: Vec<Value> = if query.contains("jvm_info") || query.contains("DCGM") {
            Vec::new()
        } else if query == "up" || query.starts_with("count(") {
            vec![json!({})]
        } else if query.contains("kube_namespace_status_phase") {
            vec![json!({ "namespace": self.namespace })]
        } else if query.contains("kube_pod_container_info") {
            let all = self.asked(query).into_iter();
            all.map(|name| merged(&[workload(&name), json!({ "container": name, "image": "i" })]))
                .collect()
        } else if !seen.is_range() {
            self.containers.iter().map(|name| workload(&name)).collect()
        } else {
            let measured = self.asked(query).into_iter().filter(|name| !self.silent.contains(name));
            measured.map(|name| json!({ "container": name })).collect()
        };
        let placed = series.into_iter().map(|labels| {
            let labels = merged(&[labels, json!({ "namespace": self.namespace })]);
            if seen.is_range() {
                json!({ "metric": labels, "values": self.samples(seen) })
            } else {
                json!({ "metric": labels, "value": [self.now_s(), "1"] })
            }
        });
        let result: Vec<Value> = placed.collect();
        let kind = if seen.is_range() { "matrix" } else { "vector" };
        json!({ "status": "success", "data": { "resultType": kind, "result": result } })
    }

    fn now_s(&self) -> i64 {
        jiff::Timestamp::now().as_second() + self.clock_ahead_s
    }

    /// Four hours.
    fn samples(&self, seen: &Seen) -> Value {
        let end_s: i64 = seen.form["end"].parse().unwrap();
        (0..=16).map(|back| json!([end_s - (16 - back) * 900, self.value])).collect()
    }
}

fn merged(objects: &[Value]) -> Value {
    let members = objects.iter().flat_map(|object| object.as_object().unwrap().clone());
    Value::Object(members.collect::<Map<_, _>>())
}
