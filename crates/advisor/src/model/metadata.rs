//! The metadata of a data source that was imported: what ran in its cluster then. The object says
//! what was asked for; what was found is in a blob, as the wire shows it.

use kernel::typed::{Kind, NoStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::inventory::{CLUSTER, Inventory};
use super::tenant::Phase;

pub const DATASOURCE_METADATA: &str = "datasource-metadata";
/// The blob with what was found.
pub const FOUND: &str = "found";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataSpec {
    pub datasource: String,
    pub metadata_profile: String,
    pub measurement_min: u32,
}

impl Kind for MetadataSpec {
    type Phase = Phase;
    type Status = NoStatus;
    const RECONCILED: bool = false;
}

/// Which part is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    pub cluster: Option<String>,
    pub namespace: Option<String>,
    pub verbose: bool,
}

/// What was asked for and is not there.
#[derive(Debug, PartialEq, Eq)]
pub enum NotThere {
    Cluster,
    Namespace,
}

/// The namespaces of what was found.
pub fn namespaces(inventory: &Inventory, datasource: &str) -> Value {
    let mut metadata = inventory.metadata(datasource);
    metadata["datasources"][datasource]["clusters"][CLUSTER]["namespaces"].take()
}

impl Part {
    /// The data source as it is shown: its cluster; with a cluster's name, its namespaces, too; with
    /// a namespace's name or `verbose`, everything.
    pub fn of(
        &self,
        datasource: &str,
        mut namespaces: Map<String, Value>,
    ) -> Result<Value, NotThere> {
        if self.cluster.as_ref().is_some_and(|cluster| cluster != CLUSTER) {
            return Err(NotThere::Cluster);
        }
        if let Some(wanted) = &self.namespace {
            let found = namespaces.shift_remove(wanted).ok_or(NotThere::Namespace)?;
            namespaces = Map::from_iter([(wanted.clone(), found)]);
        }
        let mut cluster = Map::from_iter([("cluster_name".to_owned(), Value::from(CLUSTER))]);
        if self.verbose || self.namespace.is_some() {
            cluster.insert("namespaces".into(), namespaces.into());
        } else if self.cluster.is_some() {
            let name = |name: String| (name.clone(), json!({ "namespace": name }));
            let names: Map<String, Value> = namespaces.into_iter().map(|(n, _)| name(n)).collect();
            cluster.insert("namespaces".into(), names.into());
        }
        Ok(json!({ "datasources": { datasource: {
            "datasource_name": datasource, "clusters": { CLUSTER: cluster },
        } } }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_shows_more() {
        let workload = json!({ "w": { "workload_name": "w" } });
        let all = json!({
            "a": { "namespace": "a", "workloads": workload }, "b": { "namespace": "b" },
        });
        let part = |cluster: Option<&str>, namespace: Option<&str>, verbose: bool| {
            let (cluster, namespace) = (cluster.map(str::to_owned), namespace.map(str::to_owned));
            let shown =
                Part { cluster, namespace, verbose }.of("p", all.as_object().unwrap().clone())?;
            assert_eq!(shown["datasources"]["p"]["datasource_name"], "p");
            let cluster = &shown["datasources"]["p"]["clusters"]["default"];
            assert_eq!(cluster["cluster_name"], "default");
            Ok(cluster["namespaces"].clone())
        };
        assert_eq!(part(None, None, false), Ok(Value::Null));
        let names = json!({ "a": { "namespace": "a" }, "b": { "namespace": "b" } });
        assert_eq!(part(Some("default"), None, false), Ok(names));
        assert_eq!(part(None, None, true), Ok(all.clone()));
        assert_eq!(part(Some("default"), None, true), Ok(all.clone()));
        let one = json!({ "a": all["a"] });
        assert_eq!(part(Some("default"), Some("a"), false), Ok(one.clone()));
        assert_eq!(part(None, Some("a"), true), Ok(one));
        assert_eq!(part(Some("other"), None, true), Err(NotThere::Cluster));
        assert_eq!(part(Some("default"), Some("c"), true), Err(NotThere::Namespace));
    }
}
