//! Jobs and CronJobs are made, removed and asked after.

use serde_json::Value;

use super::{Done, Hands};
use crate::cluster::{Answer, Call, Refused, Watched, What};
use crate::model::Key;

impl Hands {
    pub(super) async fn start_job(&self, manifest: &Value) -> Result<Done, Refused> {
        self.learn(Call::Create(What::Job, manifest.clone())).await
    }

    pub(super) async fn stop_job(
        &self,
        key: &Key,
        uid: &str,
        running: bool,
    ) -> Result<Done, Refused> {
        let (place, uid) = (key.place.clone(), uid.into());
        let delete = Call::Delete { what: What::Job, place, uid, foreground: running };
        self.remove(delete, &Watched::Jobs).await
    }

    pub(super) async fn start_schedule(&self, manifest: &Value) -> Result<Done, Refused> {
        self.learn(Call::Create(What::Cron, manifest.clone())).await
    }

    pub(super) async fn stop_schedule(&self, key: &Key, uid: &str) -> Result<Done, Refused> {
        let (place, uid) = (key.place.clone(), uid.into());
        let delete = Call::Delete { what: What::Cron, place, uid, foreground: true };
        self.remove(delete, &Watched::Crons).await
    }

    pub(super) async fn ask_fate(&self, key: &Key, uid: &str) -> Result<Done, Refused> {
        let ask = Call::Fate { place: key.place.clone(), uid: uid.into() };
        if let Answer::Fate(fate) = self.cluster.call(ask).await? {
            self.index.lock().fate(&key.place, uid, fate);
        }
        Ok(Done::default())
    }
}
