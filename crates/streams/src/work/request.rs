//! Completes and refuses BackfillRequests.

use serde_json::{Value, json};

use super::{Effects, Executed};
use crate::index::Index;
use crate::model::meta::seconds;
use crate::model::watch::{ApiError, Resource};
use crate::model::{Key, NamespacedName};
use crate::ports::api_server::Request;

impl Effects {
    /// Also clears the refusal of a request that was made before its stream.
    pub(super) async fn complete_request(
        &self,
        key: &Key,
        name: &str,
    ) -> Result<Executed, ApiError> {
        let object_name = NamespacedName::new(&key.object_name.namespace, name);
        let refused =
            |index: &Index| index.request(&object_name).is_some_and(|r| r.phase == "Failed");
        if refused(&self.index.lock()) {
            let patch = json!({ "status": { "phase": null, "conditions": null } });
            self.patch_request(object_name.clone(), patch, true).await?;
        }
        let patch = json!({ "spec": { "completed": true } });
        self.patch_request(object_name, patch, false).await
    }

    /// The condition has the standard format: the CRD is the operator's own.
    pub(super) async fn refuse_request(
        &self,
        object_name: &NamespacedName,
        why: &str,
    ) -> Result<Executed, ApiError> {
        let patch = json!({ "status": {
            "phase": "Failed",
            "conditions": [{
                "type": "Ready",
                "status": "False",
                "reason": "BackfillRefused",
                "message": why,
                "lastTransitionTime": seconds(self.now()),
            }],
        } });
        self.patch_request(object_name.clone(), patch, true).await
    }

    async fn patch_request(
        &self,
        object_name: NamespacedName,
        patch: Value,
        status: bool,
    ) -> Result<Executed, ApiError> {
        let (resource, name) = (Resource::BackfillRequests, object_name.clone());
        let request = Request::Patch { resource, object_name: name, patch, status };
        match self.learn(request).await {
            Err(ApiError::NotFound) => {
                let known =
                    self.index.lock().request(&object_name).map(|request| request.uid.clone());
                let gone =
                    |uid: String| self.gone(&Resource::BackfillRequests, object_name, uid.into());
                Ok(known.map(gone).unwrap_or_default())
            }
            answer => answer,
        }
    }
}
