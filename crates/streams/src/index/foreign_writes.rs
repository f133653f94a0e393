//! When this process saw other operators write to streams.
//!
//! The API server dates each write, but its clock is not this machine's: a skew would hide another
//! operator, or leave its streams alone for too long. So its dates are compared only with each
//! other, to notice a new write, and the time is our own, of when we noticed.

use jiff::Timestamp;

use super::Index;
use crate::model::watch::{Object, WatchEvent};

#[derive(Debug, Clone, Copy)]
pub(super) struct ForeignWrite {
    /// As the API server dates it.
    wrote: Timestamp,
    /// As this machine dates it; none if it was there when the class was first listed.
    pub(super) seen: Option<Timestamp>,
}

impl Index {
    /// Records the writes that an event of a class's streams shows, before the event is applied.
    /// Returns whether there was a new one.
    pub fn record_foreign_writes(
        &mut self,
        class: &str,
        event: &WatchEvent,
        now: Timestamp,
    ) -> bool {
        let listed = self.listed.contains(class);
        let mut new = false;
        for object in event.objects() {
            let Object::Stream(stream) = object else { continue };
            let Some((_, wrote)) = stream.other_writer.as_deref() else {
                self.foreign_writes.remove(&stream.key);
                continue;
            };
            let known = self.foreign_writes.get(&stream.key);
            if known.is_some_and(|known| known.wrote == *wrote) {
                continue;
            }
            let seen = (listed || known.is_some()).then_some(now);
            new |= seen.is_some();
            self.foreign_writes.insert(stream.key.clone(), ForeignWrite { wrote: *wrote, seen });
        }
        new
    }
}
