//! Merges the watches of several namespaces into one.

use std::collections::{HashMap, VecDeque};

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};

use crate::model::NamespacedName;
use crate::model::meta::Revision;
use crate::model::watch::{Object, WatchEvent};

struct MergedWatch {
    parts: SelectAll<BoxStream<'static, (usize, WatchEvent)>>,
    /// The first list of each namespace, until all have listed.
    gathering: Option<Vec<Option<Vec<Object>>>>,
    /// The known objects: another list shows deletions by what it lacks.
    known: Vec<HashMap<NamespacedName, (Box<str>, Revision)>>,
    ready: VecDeque<WatchEvent>,
}

pub fn merged(parts: Vec<BoxStream<'static, WatchEvent>>) -> BoxStream<'static, WatchEvent> {
    let count = parts.len();
    let parts = parts.into_iter().enumerate();
    let parts = parts.map(|(part, event)| event.map(move |event| (part, event)).boxed());
    let merged = MergedWatch {
        parts: futures::stream::select_all(parts),
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

impl MergedWatch {
    fn receive(&mut self, part: usize, event: WatchEvent) {
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

    fn track(&mut self, part: usize, event: &WatchEvent) {
        match event {
            WatchEvent::Upserted(object) => {
                let (object_name, uid, revision) = identity(object);
                self.known[part].insert(object_name, (uid, revision));
            }
            WatchEvent::Deleted(object_name, ..) => {
                self.known[part].remove(object_name);
            }
            WatchEvent::Snapshot(_) | WatchEvent::Error(_) => {}
        }
    }

    fn relist(&mut self, part: usize, objects: Vec<Object>) {
        let now = objects
            .iter()
            .map(identity)
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
    fn apply_to_gathering(&mut self, part: usize, event: WatchEvent) {
        self.track(part, &event);
        let Some(Some(objects)) = self.gathering.as_mut().map(|all| &mut all[part]) else {
            return;
        };
        let object_name = match &event {
            WatchEvent::Upserted(object) => identity(object).0,
            WatchEvent::Deleted(object_name, ..) => object_name.clone(),
            WatchEvent::Snapshot(_) | WatchEvent::Error(_) => return,
        };
        objects.retain(|object| identity(object).0 != object_name);
        if let WatchEvent::Upserted(object) = event {
            objects.push(*object);
        }
    }
}

fn identity(object: &Object) -> (NamespacedName, Box<str>, Revision) {
    match object {
        Object::Class(class) => {
            let name = class.name.rsplit('/').next().unwrap_or_default();
            let namespace = class.namespace.as_deref().unwrap_or_default();
            (NamespacedName::new(namespace, name), class.uid.as_str().into(), class.revision)
        }
        Object::Stream(stream) => {
            (stream.object_name().clone(), stream.uid.clone(), stream.revision)
        }
        Object::Job(job) => (job.object_name.clone(), job.uid.clone(), job.revision),
        Object::CronJob(cron_job) => {
            (cron_job.object_name.clone(), cron_job.uid.clone(), cron_job.revision)
        }
        Object::BackfillRequest(request) => {
            (request.object_name.clone(), request.uid.as_str().into(), request.revision)
        }
        Object::Template(template) => (template.object_name.clone(), "".into(), template.revision),
        Object::Secret(object_name, revision) => (object_name.clone(), "".into(), *revision),
    }
}
