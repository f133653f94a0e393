//! Whose a series is: finds the container of a shard that an answer's labels name.

use std::collections::HashMap;

use super::scan::Labels;
use crate::model::inventory::{Attribution, Member};

/// The containers of a shard by the labels that their series have.
#[derive(Debug)]
pub struct Places<'a> {
    attribution: Attribution,
    indexes: HashMap<[&'a str; 4], usize>,
}

impl<'a> Places<'a> {
    /// The places of members, in the order of the shard.
    pub fn of(members: impl IntoIterator<Item = &'a Member>, attribution: Attribution) -> Self {
        let place = |(index, member): (usize, &'a Member)| {
            let whose = [
                member.namespace.as_str(),
                member.container.as_str(),
                member.workload.as_str(),
                member.workload_type.as_str(),
            ];
            (relevant(attribution, whose), index)
        };
        let indexes = members.into_iter().enumerate().map(place).collect();
        Self { attribution, indexes }
    }

    /// The position of the member that a series is about. None if it is about a container that is not
    /// in the shard, which queries for several namespaces may also select.
    pub fn find(&self, labels: &Labels) -> Option<usize> {
        self.whose(labels, ["namespace", "container", "workload", "workload_type"])
    }

    /// The same for metrics whose exporter has labels of its own for its pod.
    pub fn find_exported(&self, labels: &Labels) -> Option<usize> {
        self.whose(
            labels,
            ["exported_namespace", "exported_container", "workload", "workload_type"],
        )
    }

    fn whose(&self, labels: &Labels, names: [&str; 4]) -> Option<usize> {
        let whose = names.map(|label| labels.get(label));
        self.indexes.get(&relevant(self.attribution, whose)).copied()
    }
}

/// What tells members apart; the rest is blank.
fn relevant(
    attribution: Attribution,
    [namespace, container, workload, workload_type]: [&str; 4],
) -> [&str; 4] {
    match attribution {
        Attribution::Namespace => [namespace, "", "", ""],
        Attribution::Name => [namespace, container, "", ""],
        Attribution::Owner => [namespace, container, workload, workload_type],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ports::prometheus::scan::{Limits, Scanner};

    fn member(namespace: &str, workload: &str, container: &str) -> Member {
        Member {
            namespace: namespace.into(),
            workload: workload.into(),
            workload_type: "deployment".into(),
            container: container.into(),
            image: String::new(),
            pods: 1,
            shared_name: false,
        }
    }

    fn found(places: &Places, labels: serde_json::Value) -> Option<usize> {
        let result = json!([{ "metric": labels, "value": [1, "1"] }]);
        let data = json!({ "resultType": "vector", "result": result });
        let mut scanner = Scanner::new(Limits::default());
        scanner.feed(json!({ "status": "success", "data": data }).to_string().as_bytes()).unwrap();
        let answer = scanner.finish().unwrap();
        places.find(answer.series().next().unwrap().0)
    }

    #[test]
    fn a_series_is_of_the_container_that_its_labels_name() {
        let members = [member("a", "w", "app"), member("b", "w", "app")];
        let places = Places::of(&members, Attribution::Name);
        assert_eq!(found(&places, json!({ "namespace": "b", "container": "app" })), Some(1));
        assert_eq!(found(&places, json!({ "namespace": "b", "container": "other" })), None);
        assert_eq!(found(&places, json!({})), None);
    }

    #[test]
    fn where_names_are_shared_the_owner_decides() {
        let members = [member("a", "one", "app"), member("a", "two", "app")];
        let places = Places::of(&members, Attribution::Owner);
        let labels = |workload: &str, workload_type: &str| json!({ "namespace": "a", "container": "app", "workload": workload, "workload_type": workload_type });
        assert_eq!(found(&places, labels("two", "deployment")), Some(1));
        assert_eq!(found(&places, labels("two", "statefulset")), None);
        assert_eq!(found(&places, json!({ "namespace": "a", "container": "app" })), None);
    }
}
