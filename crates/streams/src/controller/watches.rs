//! Applies watch events to the index and enqueues the affected streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use kubernetes::Lane;
use tokio_util::sync::CancellationToken;

use super::classes::WatchChange;
use super::{Operator, WorkItem};
use crate::model::class::Class;
use crate::model::watch::{ApiError, Object, Resource, WatchEvent, WatchState};
use crate::model::{ClassName, CrdVersion, Key};

impl Operator {
    pub(super) fn start_watch(self: &Arc<Self>, target: Resource, stop: CancellationToken) {
        let operator = self.clone();
        self.supervise(target.label(), stop.clone(), async move {
            let mut event = operator.effects.api.watch(target.clone());
            while let Some(event) = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                event = event.next() => event,
            } {
                operator.watch_secrets_on_demand(&event);
                operator.on_watch_event(&target, event, &stop);
            }
        });
    }

    fn on_watch_event(
        self: &Arc<Self>,
        target: &Resource,
        event: WatchEvent,
        stop: &CancellationToken,
    ) {
        // A cluster has the classes of one CRD version only; the class reports a missing kind.
        if let WatchEvent::Error(error) = &event
            && *error != ApiError::NotFound
        {
            tracing::info!(resource = target.label(), %error, "watch failed; retrying");
        }
        match target {
            Resource::Classes(crd_version) => {
                let blocked = self.sync.record(target, &event);
                let changed = self.classes.lock().apply(*crd_version, event);
                self.update_watches(changed);
                self.leadership_changed.notify_one();
                if blocked {
                    self.enqueue_classes();
                }
            }
            Resource::Streams(class) => self.on_stream_event(target, class, event, stop),
            _ => {
                // Readable or not, streams need not wait for secrets any longer.
                let late = matches!(
                    event,
                    WatchEvent::Error(ApiError::Unreachable(_) | ApiError::Throttled(_))
                );
                let synced = *target == Resource::Secrets && !late;
                let lane = match (target, &event) {
                    (
                        Resource::BackfillRequests,
                        WatchEvent::Upserted(_) | WatchEvent::Deleted(..),
                    ) => Lane::Urgent,
                    _ => Lane::Normal,
                };
                let (affected, blocked) = {
                    let mut index = self.effects.index.lock();
                    // Under the lock of the index: a reconcile that starts from now on finds the
                    // event in it.
                    let blocked = *target != Resource::Secrets && self.sync.record(target, &event);
                    let mut affected = index.apply(target, event);
                    affected
                        .extend(synced.then(|| index.mark_secrets_listed()).into_iter().flatten());
                    (affected, blocked)
                };
                self.enqueue(affected, lane);
                if blocked {
                    self.enqueue_classes();
                }
            }
        }
    }

    fn on_stream_event(
        self: &Arc<Self>,
        target: &Resource,
        class: &Arc<Class>,
        event: WatchEvent,
        stop: &CancellationToken,
    ) {
        let state = match &event {
            WatchEvent::Error(error) => Some(WatchState::Failed(error.clone())),
            WatchEvent::Snapshot(_) => Some(WatchState::Synced),
            WatchEvent::Upserted(_) | WatchEvent::Deleted(..) => None,
        };
        let lane = match &event {
            WatchEvent::Upserted(_) | WatchEvent::Deleted(..) => Lane::Urgent,
            WatchEvent::Snapshot(_) | WatchEvent::Error(_) => Lane::Normal,
        };
        let missing = matches!(event, WatchEvent::Error(ApiError::NotFound));
        let (affected, foreign) = {
            let mut index = self.effects.index.lock();
            // Watches are stopped under this lock, so that no event of a removed class is applied.
            if stop.is_cancelled() {
                return;
            }
            let foreign = index.record_foreign_writes(&class.name, &event, self.effects.now());
            if missing {
                // The streams were deleted with their CRD; the garbage collector removes what they
                // owned.
                index.remove_streams(&class.name);
            }
            (index.apply(target, event), foreign)
        };
        self.enqueue(affected, lane);
        if foreign {
            self.queue.push(WorkItem::Class(class.name.clone()), Lane::Normal);
        }
        if let Some(state) = state
            && self.classes.lock().set_watch_state(&class.name, stop, state)
        {
            self.queue.push(WorkItem::Class(class.name.clone()), Lane::Urgent);
        }
    }

    /// Starts the watch of secrets when the first stream restarts on changes of them.
    fn watch_secrets_on_demand(self: &Arc<Self>, event: &WatchEvent) {
        let asks = |object: &Object| matches!(object, Object::Stream(stream) if stream.annotations.on_secrets);
        if event.objects().iter().any(asks) && !self.secrets_watched.swap(true, Ordering::SeqCst) {
            self.start_watch(Resource::Secrets, self.stopping.clone());
        }
    }

    /// Applies the response to our own write of a class.
    pub(super) fn apply_class(self: &Operator, class: Class) {
        let mut classes = self.classes.lock();
        let name = class.name.clone();
        if classes.upsert(class.clone()).is_some() && classes.watched(&name).is_some() {
            self.effects.index.lock().upsert(Object::Class(class));
        }
    }

    /// Starts and stops watches after classes changed.
    fn update_watches(self: &Arc<Self>, changed: Vec<ClassName>) {
        if changed.is_empty() {
            return;
        }
        let mut classes = self.classes.lock();
        let mut index = self.effects.index.lock();
        let watch_changes = classes.watch_changes(&self.stopping);
        for step in &watch_changes {
            match step {
                WatchChange::Stop(class) => {
                    let gone = WatchEvent::Deleted(
                        class.object_name(),
                        class.uid.as_str().into(),
                        class.revision,
                    );
                    index.apply(&Resource::Classes(class.crd_version), gone);
                    index.remove_streams(&class.name);
                    tracing::info!(class = %class.name, kind = %class.kind, "stopped watching a class");
                }
                WatchChange::Start(class, _) => {
                    tracing::info!(class = %class.name, kind = %class.kind, "watching a class");
                }
                WatchChange::Restart(..) => {}
            }
        }
        let mut affected: Vec<Key> = Vec::new();
        for name in classes.names() {
            if let Some(watched) = classes.watched(&name) {
                affected.extend(index.upsert(Object::Class((*watched.class).clone())));
            }
        }
        drop(index);
        let names = classes.names();
        drop(classes);
        for step in watch_changes {
            if let WatchChange::Start(class, stop) | WatchChange::Restart(class, stop) = step {
                self.start_watch(Resource::Streams(class), stop);
            }
        }
        self.enqueue(affected, Lane::Normal);
        // The removal of a class may resolve the conflict of another.
        for name in names {
            self.queue.push(WorkItem::Class(name), Lane::Urgent);
        }
    }

    pub(super) fn enqueue_classes(&self) {
        for name in self.classes.lock().names() {
            self.queue.push(WorkItem::Class(name), Lane::Normal);
        }
    }

    /// Enqueues streams. Ignored until everything is listed; then all streams are enqueued.
    pub(super) fn enqueue(&self, keys: impl IntoIterator<Item = Key>, lane: Lane) {
        if !self.reconciling.load(Ordering::SeqCst) {
            return;
        }
        for key in keys {
            self.queue.push(WorkItem::Stream(key), lane);
        }
    }

    /// Starts the watches of both versions of classes and of everything that decisions need.
    pub(super) fn start_watches(self: &Arc<Self>) {
        let classes = [CrdVersion::V1, CrdVersion::V1Beta1].map(Resource::Classes);
        for target in classes.into_iter().chain(super::sync_state::REQUIRED) {
            self.start_watch(target, self.stopping.clone());
        }
    }
}
