//! What agents say of their clusters, and when they were last heard of.

use std::collections::HashMap;

use kernel::change::{EventDraft, Release, Wake, Write};
use kernel::store::edit;
use kernel::{Change, Json, Object, Result, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;

use crate::Fleet;
use crate::decide::cluster::{reported, scale};
use crate::model::cluster::{self, Cluster, Status};
use crate::model::kind::Kind;

/// When each agent last said something to this process. Written down only now and then.
#[derive(Default)]
pub struct Heard(Mutex<HashMap<String, Timestamp>>);

impl Fleet {
    /// An agent said something.
    pub fn heard(&self, cluster: &str) {
        let now = self.ambient.now();
        self.heard.0.lock().insert(cluster.into(), now);
    }

    /// When an agent was last heard of, here or as it was written down.
    pub fn last_heard(&self, cluster: &Cluster) -> Option<Timestamp> {
        let here = self.heard.0.lock().get(&cluster.id).copied();
        here.max(cluster.seen.heard_at)
    }

    /// Takes in what an agent says of its cluster; writes only what is new, and now and then that
    /// it was heard of.
    pub async fn report_cluster(&self, kind: &Kind, id: &str, body: &Value) -> Result<()> {
        self.heard(id);
        let taken_in = |there: Option<&Object>, now: Timestamp| {
            let object = there.filter(|object| object.deleted_at.is_none());
            let Some(object) = object else { return Ok((None, ())) };
            let before = Cluster::of(object)?;
            let mut after = reported(&before, kind, body, now);
            let third = std::time::Duration::from_secs(self.config.agent.lost_after_s / 3);
            let stale = before.seen.heard_at.is_none_or(|at| at.plus(third) <= now);
            if after == before && !stale {
                return Ok((None, ()));
            }
            after.seen.heard_at = Some(now);
            let mut written = object.clone();
            written.phase = after.status.label().into();
            written.status = Json::encode(&after.seen);
            written.updated_at = now;
            let what =
                if after.status == before.status { "reported" } else { after.status.label() };
            let room = after.status == Status::Ready
                && (before.status != after.status
                    || before.seen.capacity != after.seen.capacity
                    || before.seen.operators != after.seen.operators
                    || before.seen.agent_lost);
            let mut wakes = if room { self.waiting_instances(now) } else { Vec::new() };
            // One that the rules asked for has come: the next may.
            let came = after.status == Status::Ready && before.status != after.status;
            if came {
                let key = before.key();
                wakes.push(Wake::new(key, "", now));
            }
            let holder = before.key().to_string();
            let releases = scale::counters(&before).filter(|_| came);
            let change = Change {
                event: Some(EventDraft::of(&written, what)),
                releases: releases
                    .map(|counter| Release { counter, holder: holder.clone() })
                    .collect(),
                wakes,
                write: Some(Write::Transition(written)),
                ..Change::default()
            };
            Ok((Some(change), ()))
        };
        edit(self.store.as_ref(), &self.ambient, &cluster::key(id), taken_in).await
    }

    /// Wake-ups of all instances that wait for a cluster or for a version.
    pub fn waiting_instances(&self, now: Timestamp) -> Vec<Wake> {
        let rules = self.rules();
        let mut waiting = self.index.waiting();
        waiting.retain(|row| rules.kind(&row.instance.kind).is_some());
        waiting.iter().map(|row| crate::api::instances::wake(&row.instance, now)).collect()
    }
}
