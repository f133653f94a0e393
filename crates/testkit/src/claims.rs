//! Claims of the store in memory.

use std::collections::BTreeMap;

use kernel::queue::{Claim, ClaimBatch, ClaimRequest, State};
use kernel::{Key, Lane, Timestamp};

use crate::memory::Tables;

impl Tables {
    pub(crate) fn claim(&mut self, ask: &ClaimRequest, now: Timestamp) -> ClaimBatch {
        for row in self.queue.values_mut() {
            if row.due <= now {
                row.promote(now);
            }
        }
        let mut claims = self.take(ask, now, Lane::Urgent, ask.slots);
        let normal = ask.slots_normal.min(ask.slots - claims.len());
        claims.extend(self.take(ask, now, Lane::Normal, normal));
        let waiting =
            self.queue.values().filter(|row| matches!(row.state, State::Waiting | State::Running));
        ClaimBatch { now, claims, next_due: waiting.map(|row| row.due).min() }
    }

    /// One of each organisation in turn, beginning after the one that was served last.
    fn take(&mut self, ask: &ClaimRequest, now: Timestamp, lane: Lane, slots: usize) -> Vec<Claim> {
        let mut by_org: BTreeMap<String, Vec<(Timestamp, Key)>> = BTreeMap::new();
        for row in self.queue.values() {
            if row.state == State::Ready && !row.paused && row.lane == lane {
                by_org.entry(row.org.clone()).or_default().push((row.due, row.key.clone()));
            }
        }
        by_org.values_mut().for_each(|rows| rows.sort_by(|a, b| b.cmp(a)));
        let mut claims = Vec::new();
        while claims.len() < slots && !by_org.is_empty() {
            let last = &mut self.last_org[lane.number() as usize];
            let after = by_org.keys().find(|org| **org > *last).or(by_org.keys().next());
            *last = after.expect("it is not empty").clone();
            let Some((_, key)) = by_org.get_mut(last).and_then(Vec::pop) else {
                by_org.remove(last);
                continue;
            };
            self.fence += 1;
            let row = self.queue.get_mut(&key).expect("it was just there");
            let due = row.due;
            row.claim(&ask.worker, self.fence, now.plus(ask.ttl));
            let (org, attempt, note) = (row.org.clone(), row.attempt, row.note.clone());
            claims.push(Claim { key, org, lane, fence: self.fence, attempt, due, note });
        }
        claims
    }
}
