//! A cluster with our CRDs and a kind of streams, for one test.

use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use streams::model::GROUP;
use testkit::kubernetes::{Kubernetes, open_crd};

/// A server with these CRDs from the start; `None` skips the test.
pub async fn cluster(crds: &[Value]) -> Option<Kubernetes> {
    let shared = testkit::kubernetes()?;
    let dir = tempfile::tempdir().unwrap();
    for crd in crds {
        let file = dir.path().join(format!("{}.yaml", crd["metadata"]["name"].as_str().unwrap()));
        std::fs::write(file, serde_yaml_ng::to_string(crd).unwrap()).unwrap();
    }
    Some(shared.private(&[("crds", dir.path().to_str().unwrap())]).await)
}

/// A kind of streams that preserves unknown fields, unlike those of charts.
pub fn plugin(kind: &str, plural: &str) -> Value {
    open_crd(GROUP, kind, plural)
}

/// The API of any object.
pub fn api(client: &Client, object: &Value, plural: &str) -> Api<DynamicObject> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version) = match text(&object["apiVersion"]).split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text(&object["apiVersion"])),
    };
    let kind = GroupVersionKind::gvk(&group, &version, &text(&object["kind"]));
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Creates an object from a recording, without the fields that a server would reject.
pub async fn create(client: &Client, object: &Value, plural: &str) -> Result<Value, kube::Error> {
    let mut object = object.clone();
    for field in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"] {
        object["metadata"].as_object_mut().unwrap().shift_remove(field);
    }
    let read: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let made = api(client, &object, plural).create(&PostParams::default(), &read).await?;
    Ok(serde_json::to_value(made).unwrap())
}

pub async fn namespace(client: &Client, name: &str) {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    create(client, &object, "namespaces").await.unwrap();
}
