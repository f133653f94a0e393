//! The watches: what they tell goes into the index, and whom it touches into the queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::classes::{Sight as ClassSight, Step};
use super::queue::Lane;
use super::{Item, Operator};
use crate::cluster::{Object, Refused, Told, Watched};
use crate::decide::others_turn;
use crate::index::class_place;
use crate::model::class::Class;
use crate::model::{ClassName, Key, Line};

impl Operator {
    pub(super) fn follow(self: &Arc<Self>, what: Watched, stop: CancellationToken) {
        let operator = self.clone();
        let name = super::acting::watched(&what);
        self.task(name, stop.clone(), async move {
            let mut told = operator.hands.cluster.watch(what.clone());
            while let Some(told) = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                told = told.next() => told,
            } {
                operator.follow_secrets(&told);
                operator.told(&what, told, &stop);
            }
        });
    }

    fn told(self: &Arc<Self>, what: &Watched, told: Told, stop: &CancellationToken) {
        // Of two lines of classes a cluster has one; a kind that is missing is told by its class.
        if let Told::Trouble(refused) = &told
            && *refused != Refused::NotFound
        {
            tracing::info!(what = super::acting::watched(what), %refused, "a watch has trouble");
        }
        match what {
            Watched::Classes(line) => {
                let barred = self.sight.told(what, &told);
                let changed = self.classes.lock().told(*line, told);
                self.classes_changed(changed);
                self.conduct.notify_one();
                if barred {
                    self.all_classes();
                }
            }
            Watched::Streams(class) => self.told_of_streams(what, class, told, stop),
            _ => {
                // Whether they may be read or not, nobody has to wait any longer.
                let late = matches!(told, Told::Trouble(Refused::Away(_) | Refused::Busy(_)));
                let settled = *what == Watched::Secrets && !late;
                let lane = match (what, &told) {
                    (Watched::Requests, Told::Is(_) | Told::Gone(..)) => Lane::Urgent,
                    _ => Lane::Normal,
                };
                let (touched, barred) = {
                    let mut index = self.hands.index.lock();
                    // Under this lock: who acts from now on finds in the index what was told.
                    let barred = *what != Watched::Secrets && self.sight.told(what, &told);
                    let mut touched = index.told(what, told);
                    touched.extend(settled.then(|| index.settle_secrets()).into_iter().flatten());
                    (touched, barred)
                };
                self.touched(touched, lane);
                if barred {
                    self.all_classes();
                }
            }
        }
    }

    fn told_of_streams(
        self: &Arc<Self>,
        what: &Watched,
        class: &Arc<Class>,
        told: Told,
        stop: &CancellationToken,
    ) {
        let sight = match &told {
            Told::Trouble(refused) => Some(ClassSight::Trouble(refused.clone())),
            Told::All(_) => Some(ClassSight::Clear),
            Told::Is(_) | Told::Gone(..) => None,
        };
        let lane = match &told {
            Told::Is(_) | Told::Gone(..) => Lane::Urgent,
            Told::All(_) | Told::Trouble(_) => Lane::Normal,
        };
        let missing = matches!(told, Told::Trouble(Refused::NotFound));
        self.notice(class, &told);
        let touched = {
            let mut index = self.hands.index.lock();
            // It is stopped under this lock, so that nothing is told of a class that was left.
            if stop.is_cancelled() {
                return;
            }
            if missing {
                // With their CRD went the streams; what they left is not ours to clean up.
                index.forget_streams(&class.name);
            }
            index.told(what, told)
        };
        self.touched(touched, lane);
        if let Some(sight) = sight
            && self.classes.lock().sees(&class.name, stop, sight)
        {
            self.queue.push(Item::Class(class.name.clone()), Lane::Urgent);
        }
    }

    /// Secrets are followed from the first on who asks to be started anew with them.
    fn follow_secrets(self: &Arc<Self>, told: &Told) {
        let asks = |object: &Object| match object {
            Object::Stream(stream) => stream.wishes.on_secrets,
            _ => false,
        };
        let asked = match told {
            Told::All(objects) => objects.iter().any(asks),
            Told::Is(object) => asks(object),
            Told::Gone(..) | Told::Trouble(_) => false,
        };
        if asked && !self.secrets_followed.swap(true, Ordering::SeqCst) {
            self.follow(Watched::Secrets, self.stopping.clone());
        }
    }

    /// Another operator that writes to streams of a class.
    fn notice(&self, class: &Arc<Class>, told: &Told) {
        let other = {
            let index = self.hands.index.lock();
            let now = self.hands.now();
            let of = |object: &Object| match object {
                Object::Stream(stream) => others_turn(&index, stream, now).is_some(),
                _ => false,
            };
            match told {
                Told::All(objects) => objects.iter().any(of),
                Told::Is(object) => of(object),
                Told::Gone(..) | Told::Trouble(_) => false,
            }
        };
        if other {
            self.queue.push(Item::Class(class.name.clone()), Lane::Normal);
        }
    }

    /// A class as the answer to our own write shows it.
    pub(super) fn class_learnt(self: &Operator, class: Class) {
        let mut classes = self.classes.lock();
        let name = class.name.clone();
        if classes.learnt(class.clone()).is_some() && classes.followed(&name).is_some() {
            self.hands.index.lock().learnt(Object::Class(class));
        }
    }

    /// Follows the classes that are there now.
    fn classes_changed(self: &Arc<Self>, changed: Vec<ClassName>) {
        if changed.is_empty() {
            return;
        }
        let mut classes = self.classes.lock();
        let mut index = self.hands.index.lock();
        let steps = classes.steps(&self.stopping);
        for step in &steps {
            match step {
                Step::Leave(class) => {
                    let gone = Told::Gone(
                        class_place(&class.name),
                        class.uid.as_str().into(),
                        class.revision,
                    );
                    index.told(&Watched::Classes(class.line), gone);
                    index.forget_streams(&class.name);
                    tracing::info!(class = %class.name, kind = %class.kind, "no longer followed");
                }
                Step::Follow(class, _) => {
                    tracing::info!(class = %class.name, kind = %class.kind, "followed");
                }
                Step::Renew(..) => {}
            }
        }
        let mut touched: Vec<Key> = Vec::new();
        for name in classes.names() {
            if let Some(followed) = classes.followed(&name) {
                touched.extend(index.learnt(Object::Class((*followed.class).clone())));
            }
        }
        drop(index);
        let names = classes.names();
        drop(classes);
        for step in steps {
            if let Step::Follow(class, stop) | Step::Renew(class, stop) = step {
                self.follow(Watched::Streams(class), stop);
            }
        }
        self.touched(touched, Lane::Normal);
        // One that is left may make room for another.
        for name in names {
            self.queue.push(Item::Class(name), Lane::Urgent);
        }
    }

    pub(super) fn all_classes(&self) {
        for name in self.classes.lock().names() {
            self.queue.push(Item::Class(name), Lane::Normal);
        }
    }

    /// Nobody is looked at before everything is known; then all are.
    pub(super) fn touched(&self, keys: impl IntoIterator<Item = Key>, lane: Lane) {
        if !self.deciding.load(Ordering::SeqCst) {
            return;
        }
        for key in keys {
            self.queue.push(Item::Stream(key), lane);
        }
    }

    /// Both lines of classes, and all that is needed to decide.
    pub(super) fn follow_all(self: &Arc<Self>) {
        let classes = [Line::V1, Line::Beta].map(Watched::Classes);
        for what in classes.into_iter().chain(super::sight::NEEDED) {
            self.follow(what, self.stopping.clone());
        }
    }
}
