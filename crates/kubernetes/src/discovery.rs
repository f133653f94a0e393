//! Looks up the path of a kind and whether it is namespaced.

use kernel::{Error, Result};
use serde::Deserialize;

use crate::collection::group_path;
use crate::dynamic::failed;
use crate::{Client, Collection, HttpRequest, ObjectRef, segment};

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
    /// The collection of an object. Each kind is looked up once.
    pub(crate) async fn collection(&self, object: &ObjectRef) -> Result<Collection> {
        let kind = object.kind();
        if let Some(known) = self.collections.lock().get(&kind) {
            return Ok(known.clone());
        }
        let what = format!("what {} is", kind.kind);
        let (group, version) = (segment(&kind.group), segment(&kind.version));
        let response = self.send(HttpRequest::get(group_path(&group, &version))).await;
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
                Error::unavailable(format!("Kubernetes ({what})"), why)
            })?;
        let collection = Collection {
            namespaced: served.namespaced,
            ..Collection::new(&group, &version, &served.name)
        };
        self.collections.lock().insert(kind, collection.clone());
        Ok(collection)
    }
}
