//! BackfillRequests are made, completed, refused and removed.

use serde_json::{Value, json};

use super::{Done, Hands};
use crate::cluster::{Call, Refused, Watched, What};
use crate::index::Index;
use crate::model::meta::seconds;
use crate::model::{Key, Place};

impl Hands {
    pub(super) async fn request_initial(&self, manifest: &Value) -> Result<Done, Refused> {
        self.learn(Call::Create(What::Request, manifest.clone())).await
    }

    /// One that was refused while there was no stream no longer says so.
    pub(super) async fn complete_request(&self, key: &Key, name: &str) -> Result<Done, Refused> {
        let place = Place::new(&key.place.namespace, name);
        let refused = |index: &Index| index.request(&place).is_some_and(|r| r.phase == "Failed");
        if refused(&self.index.lock()) {
            let patch = json!({ "status": { "phase": null, "conditions": null } });
            self.patch_request(place.clone(), patch, true).await?;
        }
        let patch = json!({ "spec": { "completed": true } });
        self.patch_request(place, patch, false).await
    }

    /// The condition is of the standard kind: the CRD is the operator's own.
    pub(super) async fn refuse_request(&self, place: &Place, why: &str) -> Result<Done, Refused> {
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
        self.patch_request(place.clone(), patch, true).await
    }

    pub(super) async fn remove_request(&self, place: &Place, uid: &str) -> Result<Done, Refused> {
        let (place, uid) = (place.clone(), uid.into());
        let delete = Call::Delete { what: What::Request, place, uid, foreground: false };
        self.remove(delete, &Watched::Requests).await
    }

    async fn patch_request(
        &self,
        place: Place,
        patch: Value,
        status: bool,
    ) -> Result<Done, Refused> {
        let call = Call::Patch { what: What::Request, place: place.clone(), patch, status };
        match self.learn(call).await {
            Err(Refused::NotFound) => {
                let known = self.index.lock().request(&place).map(|request| request.uid.clone());
                let gone = |uid: String| self.gone(&Watched::Requests, place, uid.into());
                Ok(known.map(gone).unwrap_or_default())
            }
            answer => answer,
        }
    }
}
