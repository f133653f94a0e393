//! Undoes a group of changes of which one was refused.

use std::collections::{BTreeMap, BTreeSet};

use super::{BatchState, Neighbours, RowSet};
use crate::Change;

/// The rows of a group as they were before it.
pub(super) struct Undo {
    touched: RowSet,
    rows: BatchState,
    /// Dependents and dependencies, if the group writes edges.
    neighbours: Option<(Neighbours, Neighbours)>,
}

impl BatchState {
    /// Copies the rows that these changes may write.
    pub(super) fn copy_of(&self, group: &[Change]) -> Undo {
        fn copy<K: Ord + Clone, T: Clone>(
            from: &BTreeMap<K, T>,
            keys: &BTreeSet<K>,
        ) -> BTreeMap<K, T> {
            let there = keys.iter().filter_map(|key| Some((key.clone(), from.get(key)?.clone())));
            there.collect()
        }
        let mut touched = RowSet::default();
        touched.add(group);
        for (keys, map) in [
            (&touched.dependents_of, &self.dependents),
            (&touched.dependencies_of, &self.dependencies),
        ] {
            let neighbours = keys.iter().filter_map(|key| map.get(key)).flatten();
            touched.queue.extend(neighbours.map(|(key, _)| key.clone()));
        }
        let edges = group.iter().any(|change| change.depends_on.is_some());
        let neighbours = edges.then(|| (self.dependents.clone(), self.dependencies.clone()));
        let rows = BatchState {
            objects: copy(&self.objects, &touched.objects),
            dependents: Neighbours::new(),
            in_pages: BTreeSet::new(),
            dependencies: Neighbours::new(),
            queue: copy(&self.queue, &touched.queue),
            counters: copy(&self.counters, &touched.counters),
            holds: copy(&self.holds, &touched.holds),
            leases: BTreeMap::new(),
            commands: copy(&self.commands, &touched.commands),
            cursors: copy(&self.cursors, &touched.cursors),
            blobs: self.blobs.clone(),
            blob_data: self.blob_data.clone(),
            blob_removals: self.blob_removals.clone(),
            writes: copy(&self.writes, &touched.objects),
            edges: copy(&self.edges, &touched.objects),
        };
        Undo { touched, rows, neighbours }
    }

    /// Undoes what was applied since [`BatchState::copy_of`].
    pub(super) fn restore(&mut self, undo: Undo) {
        let Undo { touched, rows: before, neighbours } = undo;
        fn put_back<K: Ord, T>(
            into: &mut BTreeMap<K, T>,
            keys: &BTreeSet<K>,
            before: BTreeMap<K, T>,
        ) {
            keys.iter().for_each(|key| drop(into.remove(key)));
            into.extend(before);
        }
        put_back(&mut self.objects, &touched.objects, before.objects);
        put_back(&mut self.queue, &touched.queue, before.queue);
        put_back(&mut self.counters, &touched.counters, before.counters);
        put_back(&mut self.holds, &touched.holds, before.holds);
        put_back(&mut self.commands, &touched.commands, before.commands);
        put_back(&mut self.cursors, &touched.cursors, before.cursors);
        put_back(&mut self.writes, &touched.objects, before.writes);
        put_back(&mut self.edges, &touched.objects, before.edges);
        if let Some((dependents, dependencies)) = neighbours {
            (self.dependents, self.dependencies) = (dependents, dependencies);
        }
        (self.blobs, self.blob_data) = (before.blobs, before.blob_data);
        self.blob_removals = before.blob_removals;
    }
}
