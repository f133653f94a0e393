//! When each agent last contacted this process. Its cluster's status records it less often.

use std::collections::HashMap;

use kernel::Timestamp;
use parking_lot::Mutex;

use crate::model::cluster::Cluster;

#[derive(Default)]
pub struct AgentLiveness(Mutex<HashMap<String, Timestamp>>);

impl AgentLiveness {
    /// The agent of a cluster made contact.
    pub fn touch(&self, cluster: &str, now: Timestamp) {
        self.0.lock().insert(cluster.into(), now);
    }

    /// The later of the last contact with this process and the one that the status records.
    pub fn last_seen(&self, cluster: &Cluster) -> Option<Timestamp> {
        let here = self.0.lock().get(&cluster.id).copied();
        here.max(cluster.status.agent_seen_at)
    }
}
