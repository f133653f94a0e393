//! Merges the watches of several namespaces into one.

use std::collections::{HashMap, VecDeque};

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};

use crate::{NamespacedName, Revision, WatchEvent};

/// The name, uid and revision of an object.
type Identity = (NamespacedName, Box<str>, Revision);

struct MergedWatch<T> {
    parts: SelectAll<BoxStream<'static, (usize, WatchEvent<T>)>>,
    identity: fn(&T) -> Identity,
    /// The first list of each namespace, until all have listed.
    gathering: Option<Vec<Option<Vec<T>>>>,
    /// The known objects: another list shows deletions by what it lacks.
    known: Vec<HashMap<NamespacedName, (Box<str>, Revision)>>,
    ready: VecDeque<WatchEvent<T>>,
}

/// Reports one snapshot when all parts have listed, and changes from then on.
pub fn merge<T: Send + 'static>(
    parts: Vec<BoxStream<'static, WatchEvent<T>>>,
    identity: fn(&T) -> Identity,
) -> BoxStream<'static, WatchEvent<T>> {
    let count = parts.len();
    let parts = parts.into_iter().enumerate();
    let parts = parts.map(|(part, event)| event.map(move |event| (part, event)).boxed());
    let merged = MergedWatch {
        parts: futures::stream::select_all(parts),
        identity,
        gathering: Some((0..count).map(|_| None).collect()),
        known: vec![HashMap::new(); count],
        ready: VecDeque::new(),
    };
    futures::stream::unfold(merged, async |mut merged| {
        loop {
            if let Some(event) = merged.ready.pop_front() {
                return Some((event, merged));
            }
            let (part, event) = merged.parts.next().await?;
            merged.receive(part, event);
        }
    })
    .boxed()
}

impl<T> MergedWatch<T> {
    fn receive(&mut self, part: usize, event: WatchEvent<T>) {
        match event {
            WatchEvent::Snapshot(objects) => self.relist(part, objects),
            WatchEvent::Error(error) => self.ready.push_back(WatchEvent::Error(error)),
            one if self.gathering.is_some() => self.apply_to_gathering(part, one),
            one => {
                self.track(part, &one);
                self.ready.push_back(one);
            }
        }
    }

    fn track(&mut self, part: usize, event: &WatchEvent<T>) {
        match event {
            WatchEvent::Upserted(object) => {
                let (object_name, uid, revision) = (self.identity)(object);
                self.known[part].insert(object_name, (uid, revision));
            }
            WatchEvent::Deleted(object_name, ..) => {
                self.known[part].remove(object_name);
            }
            WatchEvent::Snapshot(_) | WatchEvent::Error(_) => {}
        }
    }

    fn relist(&mut self, part: usize, objects: Vec<T>) {
        let now = objects
            .iter()
            .map(self.identity)
            .map(|(object_name, uid, revision)| (object_name, (uid, revision)));
        let before = std::mem::replace(&mut self.known[part], now.collect());
        let Some(gathering) = &mut self.gathering else {
            for (object_name, (uid, revision)) in before {
                if !self.known[part].contains_key(&object_name) {
                    self.ready.push_back(WatchEvent::Deleted(object_name, uid, revision));
                }
            }
            self.ready
                .extend(objects.into_iter().map(|object| WatchEvent::Upserted(object.into())));
            return;
        };
        gathering[part] = Some(objects);
        if gathering.iter().all(Option::is_some) {
            let all = self.gathering.take().unwrap_or_default();
            self.ready
                .push_back(WatchEvent::Snapshot(all.into_iter().flatten().flatten().collect()));
        }
    }

    /// Applies a change in one namespace while others have not listed yet.
    fn apply_to_gathering(&mut self, part: usize, event: WatchEvent<T>) {
        self.track(part, &event);
        let Some(Some(objects)) = self.gathering.as_mut().map(|all| &mut all[part]) else {
            return;
        };
        let object_name = match &event {
            WatchEvent::Upserted(object) => (self.identity)(object).0,
            WatchEvent::Deleted(object_name, ..) => object_name.clone(),
            WatchEvent::Snapshot(_) | WatchEvent::Error(_) => return,
        };
        objects.retain(|object| (self.identity)(object).0 != object_name);
        if let WatchEvent::Upserted(object) = event {
            objects.push(*object);
        }
    }
}
