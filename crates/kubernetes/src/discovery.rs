//! Looks up the path of a kind and whether it is namespaced.

use kernel::{Error, Result};
use serde::Deserialize;

use crate::dynamic::failed;
use crate::{Client, Collection, HttpRequest, NamespacedName, ObjectRef, segment};

/// A kind as the API server serves it.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub collection: Collection,
    pub namespaced: bool,
}

impl Resource {
    /// The path of one object.
    pub fn object(&self, object: &ObjectRef) -> String {
        let namespace = if self.namespaced { &object.namespace } else { "" };
        self.collection.object(&NamespacedName::new(namespace, &object.name))
    }
}

#[derive(Deserialize)]
struct ApiResourceList {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    kind: String,
    namespaced: bool,
}

impl Client {
    /// Each kind is looked up once.
    pub(crate) async fn resource(&self, object: &ObjectRef) -> Result<Resource> {
        let kind = object.kind();
        if let Some(known) = self.resources.lock().get(&kind) {
            return Ok(known.clone());
        }
        let what = format!("what {} is", kind.kind);
        let (group, version) = (segment(&kind.group), segment(&kind.version));
        let path = match group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let response = self.send(HttpRequest::get(path)).await;
        let response = response.map_err(|error| failed(&what, error))?;
        let list: ApiResourceList = serde_json::from_slice(&response)
            .map_err(|error| Error::unavailable(format!("Kubernetes ({what})"), error))?;
        // Subresources have a slash in their names.
        let served = list
            .resources
            .iter()
            .find(|served| served.kind == kind.kind && !served.name.contains('/'))
            .ok_or_else(|| {
                let why = format!("{} has no such kind", object.api_version);
                Error::unavailable(format!("Kubernetes ({what}): {why}; it"), why)
            })?;
        let resource = Resource {
            collection: Collection::new(&group, &version, &served.name),
            namespaced: served.namespaced,
        };
        self.resources.lock().insert(kind, resource.clone());
        Ok(resource)
    }
}
