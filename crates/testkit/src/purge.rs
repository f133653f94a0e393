//! What the store in memory deletes when rows are old.

use std::collections::BTreeMap;

use kernel::store::Purge;
use kernel::{Key, Object};

use crate::memory::Tables;

impl Tables {
    pub(crate) fn purge(&mut self, purge: &Purge, limit: usize) -> usize {
        let newest = self.head.event_seq;
        let read = self.cursors.values().map(|cursor| cursor.seq).min().unwrap_or(newest);
        let mut old = 0;
        for (before, last) in [(purge.events_before, read), (purge.unread_events_before, newest)] {
            let first = self.events.iter().take(limit);
            let first = first.enumerate().take_while(|(_, e)| e.seq < newest && e.seq <= last);
            let gone = first.filter(|(_, event)| event.at < before).last();
            let gone = gone.map_or(0, |(place, _)| place + 1);
            self.events.drain(..gone);
            old += gone;
        }
        let needed: Vec<&Key> =
            self.edges.values().flat_map(BTreeMap::keys).chain(self.queue.keys()).collect();
        let deleted =
            |object: &Object| object.deleted_at.is_some_and(|at| at < purge.deleted_before);
        let deleted: Vec<Key> = self
            .objects
            .iter()
            .filter(|(key, (_, object))| deleted(object) && !needed.contains(key))
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect();
        for key in &deleted {
            self.objects.remove(key);
            self.edges.remove(key);
            self.blobs.retain(|(of, _), _| of != key);
        }
        let gone: Vec<String> = self
            .commands
            .iter()
            .filter(|(_, (at, _))| *at < purge.commands_before)
            .map(|(id, _)| id.clone())
            .take(limit)
            .collect();
        gone.iter().for_each(|id| drop(self.commands.remove(id)));
        let archived = self.audit.iter().take(limit);
        let archived = archived.filter(|entry| entry.seq <= self.head.archived.seq).count();
        self.audit.drain(..archived);
        old + gone.len() + deleted.len() + archived
    }
}
