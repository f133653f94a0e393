//! What discovery finds in a cluster: namespaces, their workloads, and the containers of those.
//!
//! A workload is a name *and* a type: a deployment and a stateful set of one name are two workloads.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The name of every cluster: a data source is one cluster to the existing service.
pub const CLUSTER: &str = "default";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    pub namespaces: BTreeMap<String, Workloads>,
}

pub type Workloads = BTreeMap<WorkloadKey, Containers>;
pub type Containers = BTreeMap<String, Container>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadKey {
    pub name: String,
    pub workload_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub image: String,
    /// About how many pods run it, to size shards.
    pub pods: u32,
    /// Whether another workload of the namespace has a container of this name. Then the name alone
    /// does not tell whose the measurements are, and the owner of the pod is asked.
    pub shared_name: bool,
}

/// One container with all that addresses it: what one experiment is about. Without workload and
/// container it is the whole namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub namespace: String,
    pub workload: String,
    pub workload_type: String,
    pub container: String,
    pub image: String,
    pub pods: u32,
    pub shared_name: bool,
}

/// How a measurement is known to be a container's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attribution {
    /// By its namespace and its name, which no other container has.
    Name,
    /// By the workload that owns the pod.
    Owner,
    /// It is about the namespace as a whole.
    Namespace,
}

/// What is read at once: everything of some namespaces, or less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub attribution: Attribution,
    pub namespaces: BTreeSet<String>,
    /// The names of containers; none if all are meant.
    pub containers: Option<BTreeSet<String>>,
    /// The names of workloads; none if all are meant, or owners are not asked.
    pub workloads: Option<BTreeSet<String>>,
}

impl Selection {
    /// The selection of some containers. If it is narrow, the namespaces have more than these.
    pub fn of<'a>(
        members: impl IntoIterator<Item = &'a Member>,
        attribution: Attribution,
        narrow: bool,
    ) -> Self {
        let mut selection = Self {
            attribution,
            namespaces: BTreeSet::new(),
            containers: (narrow && attribution != Attribution::Namespace).then(BTreeSet::new),
            workloads: (narrow && attribution == Attribution::Owner).then(BTreeSet::new),
        };
        for member in members {
            selection.namespaces.insert(member.namespace.clone());
            if let Some(containers) = &mut selection.containers {
                containers.insert(member.container.clone());
            }
            if let Some(workloads) = &mut selection.workloads {
                workloads.insert(member.workload.clone());
            }
        }
        selection
    }
}

impl Member {
    /// A whole namespace.
    pub fn of_namespace(namespace: &str, pods: u32) -> Self {
        Self {
            namespace: namespace.to_owned(),
            workload: String::new(),
            workload_type: String::new(),
            container: String::new(),
            image: String::new(),
            pods,
            shared_name: false,
        }
    }

    pub fn is_namespace(&self) -> bool {
        self.container.is_empty()
    }

    pub fn attribution(&self) -> Attribution {
        match self {
            _ if self.is_namespace() => Attribution::Namespace,
            _ if self.shared_name => Attribution::Owner,
            _ => Attribution::Name,
        }
    }
}

impl Inventory {
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// The containers, in the order of namespace, workload, type and name.
    pub fn members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        for (namespace, workloads) in &self.namespaces {
            for (workload, containers) in workloads {
                members.extend(containers.iter().map(|(name, container)| Member {
                    namespace: namespace.clone(),
                    workload: workload.name.clone(),
                    workload_type: workload.workload_type.clone(),
                    container: name.clone(),
                    image: container.image.clone(),
                    pods: container.pods,
                    shared_name: container.shared_name,
                }));
            }
        }
        members
    }

    /// The namespaces as wholes, in their order.
    pub fn namespaces(&self) -> Vec<Member> {
        let pods = |workloads: &Workloads| {
            let containers = workloads.values().flat_map(Containers::values);
            containers.map(|container| container.pods).fold(1, u32::saturating_add)
        };
        let member =
            |(name, workloads): (&String, &Workloads)| Member::of_namespace(name, pods(workloads));
        self.namespaces.iter().map(member).collect()
    }

    /// The metadata of a job as the wire shows it. It is keyed by the names of workloads; where a
    /// name is taken, its type is added to the key.
    pub fn metadata(&self, datasource: &str) -> Value {
        let namespaces: Map<String, Value> = self.namespaces.iter().map(namespace).collect();
        json!({ "datasources": { datasource: {
            "datasource_name": datasource,
            "clusters": { CLUSTER: {
                "cluster_name": CLUSTER,
                "dataSourceClusterName": CLUSTER,
                "namespaces": namespaces,
            } },
        } } })
    }
}

fn namespace((name, found): (&String, &Workloads)) -> (String, Value) {
    let mut workloads = Map::new();
    for (key, containers) in found {
        let mut workload = Map::new();
        workload.insert("workload_name".into(), key.name.as_str().into());
        workload.insert("workload_type".into(), key.workload_type.as_str().into());
        if !containers.is_empty() {
            let containers = containers.iter().map(|(name, container)| {
                let image = &container.image;
                let shown = json!({ "container_name": name, "container_image_name": image });
                (name.clone(), shown)
            });
            workload.insert("containers".into(), Value::Object(containers.collect()));
        }
        let taken = workloads.contains_key(&key.name);
        let typed = || format!("{}({})", key.name, key.workload_type);
        let key = if taken { typed() } else { key.name.clone() };
        workloads.insert(key, Value::Object(workload));
    }
    let mut shown = Map::from_iter([("namespace".to_owned(), Value::from(name.as_str()))]);
    if !workloads.is_empty() {
        shown.insert("workloads".into(), Value::Object(workloads));
    }
    (name.clone(), Value::Object(shown))
}
