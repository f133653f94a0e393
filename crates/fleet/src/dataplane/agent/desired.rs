//! A desired instance of the control plane as Kubernetes objects.

use kernel::{Error, Result};
use serde_json::{Map, Value, json};

use crate::ports::kubernetes::ObjectRef;

/// On all objects of an agent: the cluster and the instance.
pub const AGENT: &str = "mainstay.io/agent";
pub const INSTANCE: &str = "mainstay.io/instance";
/// On the namespace: the placement of the instance.
pub const PLACEMENT: &str = "mainstay.io/placement";

#[derive(Debug, Clone, PartialEq)]
pub struct DesiredInstance {
    pub id: String,
    pub kind: String,
    pub placement: String,
    pub namespace: String,
    pub deleted: bool,
    pub suspended: bool,
    pub versions: Value,
    /// The cluster's router, a target of DNS names; empty if it has none.
    pub router: String,
    /// The namespace first.
    pub objects: Vec<Value>,
}

impl DesiredInstance {
    pub fn read(kind: &str, cluster: &str, item: &Value) -> Result<DesiredInstance> {
        let more = &item["mainstay"];
        let text = |value: &Value, name: &str| match value.as_str() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(Error::invalid(name, "must be given")),
        };
        let id = text(&item["id"], "id")?;
        let namespace = text(&more["namespace"], "mainstay.namespace")?;
        let placement = text(&more["placement"], "mainstay.placement")?;
        let suspended = more["suspended"] == true;
        let mut objects = vec![json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": namespace, "annotations": { PLACEMENT: placement } },
        })];
        let manifests = more["manifests"].as_array().map(Vec::as_slice).unwrap_or_default();
        objects.extend(manifests.iter().cloned());
        for object in &mut objects {
            ObjectRef::from_manifest(object)?;
            mark(object, cluster, &id);
            if suspended {
                scale_to_zero(object);
            }
        }
        Ok(DesiredInstance {
            id,
            kind: kind.into(),
            placement,
            namespace,
            deleted: more["deleted"] == true,
            suspended,
            versions: more["versions"].clone(),
            router: more["router"].as_str().unwrap_or_default().into(),
            objects,
        })
    }
}

/// Labels an object and its pods, so that both are watched.
fn mark(object: &mut Value, cluster: &str, id: &str) {
    label(&mut object["metadata"], cluster, id);
    if object["spec"]["template"].is_object() {
        label(&mut object["spec"]["template"]["metadata"], cluster, id);
    }
}

fn label(metadata: &mut Value, cluster: &str, id: &str) {
    if !metadata["labels"].is_object() {
        metadata["labels"] = Value::Object(Map::new());
    }
    metadata["labels"][AGENT] = cluster.into();
    metadata["labels"][INSTANCE] = id.into();
}

/// Removes the pods and keeps everything else.
fn scale_to_zero(object: &mut Value) {
    if matches!(object["kind"].as_str(), Some("Deployment" | "StatefulSet" | "ReplicaSet")) {
        object["spec"]["replicas"] = 0.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_marked_and_rests_when_it_is_suspended() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "a", "namespace": "n" },
            "spec": { "replicas": 3, "template": { "metadata": { "labels": { "x": "y" } } } },
        });
        let mut item = json!({
            "id": "k1",
            "mainstay": { "namespace": "n", "placement": "p", "manifests": [deployment] },
        });
        let desired = DesiredInstance::read("kafka", "c1", &item).unwrap();
        assert_eq!(desired.objects[0]["metadata"]["annotations"][PLACEMENT], "p");
        let labels = &desired.objects[1]["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &json!({ "x": "y", AGENT: "c1", INSTANCE: "k1" }));
        assert_eq!(desired.objects[1]["spec"]["replicas"], 3);
        item["mainstay"]["suspended"] = true.into();
        assert_eq!(
            DesiredInstance::read("kafka", "c1", &item).unwrap().objects[1]["spec"]["replicas"],
            0
        );
        item["mainstay"]["placement"] = "".into();
        assert!(DesiredInstance::read("kafka", "c1", &item).is_err());
    }
}
