//! The time of each agent's last contact with this process. The cluster's status records it less often.

use std::collections::HashMap;

use kernel::Timestamp;
use parking_lot::Mutex;

use crate::model::cluster::Cluster;

#[derive(Default)]
pub struct AgentLiveness(Mutex<HashMap<String, Timestamp>>);

impl AgentLiveness {
    /// Records contact with the agent of a cluster.
    pub fn touch(&self, cluster: &str, now: Timestamp) {
        self.0.lock().insert(cluster.into(), now);
    }

    /// The later of the last contact with this process and the one that the status records.
    pub fn last_seen(&self, cluster: &Cluster) -> Option<Timestamp> {
        let local = self.0.lock().get(&cluster.id).copied();
        local.max(cluster.status.agent_seen_at)
    }
}
