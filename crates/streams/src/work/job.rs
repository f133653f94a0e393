//! Creates and deletes Jobs and CronJobs, and looks up their results.

use serde_json::Value;

use super::{Effects, Executed};
use crate::model::Key;
use crate::model::watch::{ApiError, WatchTarget};
use crate::ports::api_server::{Request, ResourceKind, Response};

impl Effects {
    pub(super) async fn start_job(&self, manifest: &Value) -> Result<Executed, ApiError> {
        self.learn(Request::Create(ResourceKind::Job, manifest.clone())).await
    }

    pub(super) async fn stop_job(
        &self,
        key: &Key,
        uid: &str,
        running: bool,
    ) -> Result<Executed, ApiError> {
        let (object_name, uid) = (key.object_name.clone(), uid.into());
        let delete =
            Request::Delete { kind: ResourceKind::Job, object_name, uid, foreground: running };
        self.remove(delete, &WatchTarget::Jobs).await
    }

    pub(super) async fn start_schedule(&self, manifest: &Value) -> Result<Executed, ApiError> {
        self.learn(Request::Create(ResourceKind::CronJob, manifest.clone())).await
    }

    pub(super) async fn stop_schedule(&self, key: &Key, uid: &str) -> Result<Executed, ApiError> {
        let (object_name, uid) = (key.object_name.clone(), uid.into());
        let delete =
            Request::Delete { kind: ResourceKind::CronJob, object_name, uid, foreground: true };
        self.remove(delete, &WatchTarget::CronJobs).await
    }

    pub(super) async fn look_up_job_result(
        &self,
        key: &Key,
        uid: &str,
    ) -> Result<Executed, ApiError> {
        let ask = Request::JobResult { object_name: key.object_name.clone(), uid: uid.into() };
        if let Response::JobResult(result) = self.api.send(ask).await? {
            self.index.lock().record_job_result(&key.object_name, uid, result);
        }
        Ok(Executed::default())
    }
}
