//! One watch of several namespaces, made of a watch of each.

use std::collections::{HashMap, VecDeque};

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};

use crate::cluster::{Object, Told};
use crate::model::Place;
use crate::model::meta::Revision;

struct Several {
    parts: SelectAll<BoxStream<'static, (usize, Told)>>,
    /// What each has listed before all have; then none.
    gathering: Option<Vec<Option<Vec<Object>>>>,
    /// Who is there: a part that lists again tells by what is missing.
    known: Vec<HashMap<Place, (Box<str>, Revision)>>,
    ready: VecDeque<Told>,
}

pub fn merged(parts: Vec<BoxStream<'static, Told>>) -> BoxStream<'static, Told> {
    let count = parts.len();
    let parts = parts.into_iter().enumerate();
    let parts = parts.map(|(part, told)| told.map(move |told| (part, told)).boxed());
    let several = Several {
        parts: futures::stream::select_all(parts),
        gathering: Some((0..count).map(|_| None).collect()),
        known: vec![HashMap::new(); count],
        ready: VecDeque::new(),
    };
    futures::stream::unfold(several, async |mut several| {
        loop {
            if let Some(told) = several.ready.pop_front() {
                return Some((told, several));
            }
            let (part, told) = several.parts.next().await?;
            several.take(part, told);
        }
    })
    .boxed()
}

impl Several {
    fn take(&mut self, part: usize, told: Told) {
        match told {
            Told::All(objects) => self.all(part, objects),
            Told::Trouble(refused) => self.ready.push_back(Told::Trouble(refused)),
            one if self.gathering.is_some() => self.gathered(part, one),
            one => {
                self.note(part, &one);
                self.ready.push_back(one);
            }
        }
    }

    fn note(&mut self, part: usize, told: &Told) {
        match told {
            Told::Is(object) => {
                let (place, uid, revision) = who(object);
                self.known[part].insert(place, (uid, revision));
            }
            Told::Gone(place, ..) => {
                self.known[part].remove(place);
            }
            Told::All(_) | Told::Trouble(_) => {}
        }
    }

    fn all(&mut self, part: usize, objects: Vec<Object>) {
        let now = objects.iter().map(who).map(|(place, uid, revision)| (place, (uid, revision)));
        let before = std::mem::replace(&mut self.known[part], now.collect());
        let Some(gathering) = &mut self.gathering else {
            for (place, (uid, revision)) in before {
                if !self.known[part].contains_key(&place) {
                    self.ready.push_back(Told::Gone(place, uid, revision));
                }
            }
            self.ready.extend(objects.into_iter().map(|object| Told::Is(object.into())));
            return;
        };
        gathering[part] = Some(objects);
        if gathering.iter().all(Option::is_some) {
            let all = self.gathering.take().unwrap_or_default();
            self.ready.push_back(Told::All(all.into_iter().flatten().flatten().collect()));
        }
    }

    /// A change in one part while others have not listed yet.
    fn gathered(&mut self, part: usize, told: Told) {
        self.note(part, &told);
        let Some(Some(objects)) = self.gathering.as_mut().map(|all| &mut all[part]) else {
            return;
        };
        let place = match &told {
            Told::Is(object) => who(object).0,
            Told::Gone(place, ..) => place.clone(),
            Told::All(_) | Told::Trouble(_) => return,
        };
        objects.retain(|object| who(object).0 != place);
        if let Told::Is(object) = told {
            objects.push(*object);
        }
    }
}

fn who(object: &Object) -> (Place, Box<str>, Revision) {
    match object {
        Object::Class(class) => {
            let name = class.name.rsplit('/').next().unwrap_or_default();
            let namespace = class.namespace.as_deref().unwrap_or_default();
            (Place::new(namespace, name), class.uid.as_str().into(), class.revision)
        }
        Object::Stream(stream) => (stream.place().clone(), stream.uid.clone(), stream.revision),
        Object::Job(job) => (job.place.clone(), job.uid.clone(), job.revision),
        Object::Cron(cron) => (cron.place.clone(), cron.uid.clone(), cron.revision),
        Object::Request(request) => {
            (request.place.clone(), request.uid.as_str().into(), request.revision)
        }
        Object::Template(template) => (template.place.clone(), "".into(), template.revision),
        Object::Secret(place, revision) => (place.clone(), "".into(), *revision),
    }
}
