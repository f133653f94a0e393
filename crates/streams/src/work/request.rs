//! Creates, completes, refuses and deletes BackfillRequests.

use serde_json::{Value, json};

use super::{Effects, Executed};
use crate::index::Index;
use crate::model::meta::seconds;
use crate::model::watch::{ApiError, WatchTarget};
use crate::model::{Key, NamespacedName};
use crate::ports::api_server::{Request, ResourceKind};

impl Effects {
    pub(super) async fn request_initial(&self, manifest: &Value) -> Result<Executed, ApiError> {
        self.learn(Request::Create(ResourceKind::BackfillRequest, manifest.clone())).await
    }

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

    pub(super) async fn remove_request(
        &self,
        object_name: &NamespacedName,
        uid: &str,
    ) -> Result<Executed, ApiError> {
        let (object_name, uid) = (object_name.clone(), uid.into());
        let delete = Request::Delete {
            kind: ResourceKind::BackfillRequest,
            object_name,
            uid,
            foreground: false,
        };
        self.remove(delete, &WatchTarget::BackfillRequests).await
    }

    async fn patch_request(
        &self,
        object_name: NamespacedName,
        patch: Value,
        status: bool,
    ) -> Result<Executed, ApiError> {
        let send = Request::Patch {
            kind: ResourceKind::BackfillRequest,
            object_name: object_name.clone(),
            patch,
            status,
        };
        match self.learn(send).await {
            Err(ApiError::NotFound) => {
                let known =
                    self.index.lock().request(&object_name).map(|request| request.uid.clone());
                let gone = |uid: String| {
                    self.gone(&WatchTarget::BackfillRequests, object_name, uid.into())
                };
                Ok(known.map(gone).unwrap_or_default())
            }
            answer => answer,
        }
    }
}
