//! The known classes, and which of them are watched.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::decide::class::{overlap, spec_problem};
use crate::model::class::Class;
use crate::model::watch::{ApiError, Object, WatchEvent, WatchState};
use crate::model::{ClassName, CrdVersion};

/// The least time between two writes of a status.
const WRITE: Duration = Duration::from_secs(1);

/// A class whose streams are watched.
pub struct WatchedClass {
    pub class: Arc<Class>,
    pub stop: CancellationToken,
    pub state: WatchState,
}

#[derive(Default)]
pub struct Classes {
    known: BTreeMap<ClassName, Arc<Class>>,
    watched: HashMap<ClassName, WatchedClass>,
    /// When each status was last written.
    written: HashMap<ClassName, Instant>,
    /// Whether the classes of a CRD version have been listed, or are known not to exist.
    listed_versions: [bool; 2],
}

/// A change of the watches.
#[derive(Debug, PartialEq)]
pub enum WatchChange {
    Start(Arc<Class>, CancellationToken),
    /// Its streams are removed from the index and not changed in the cluster.
    Stop(Arc<Class>),
    /// The same streams have to be parsed in another way.
    Restart(Arc<Class>, CancellationToken),
}

impl Classes {
    /// Applies a watch event. Returns the classes that changed.
    pub fn apply(&mut self, crd_version: CrdVersion, event: WatchEvent) -> Vec<ClassName> {
        match event {
            WatchEvent::Snapshot(objects) => {
                self.listed_versions[crd_version as usize] = true;
                let mut changed: Vec<ClassName> = Vec::new();
                let there: Vec<Class> = objects.into_iter().filter_map(class).collect();
                let gone = |known: &Arc<Class>| {
                    known.crd_version == crd_version
                        && !there.iter().any(|class| class.name == known.name)
                };
                changed.extend(self.known.values().filter(|k| gone(k)).map(|k| k.name.clone()));
                self.known.retain(|name, _| !changed.contains(name));
                for class in there {
                    changed.extend(self.upsert(class));
                }
                changed
            }
            WatchEvent::Upserted(object) => {
                class(*object).and_then(|class| self.upsert(class)).into_iter().collect()
            }
            WatchEvent::Deleted(object_name, uid, _) => {
                let is = |class: &&Arc<Class>| {
                    class.crd_version == crd_version
                        && class.uid == *uid
                        && class.object_name() == object_name
                };
                let name = self.known.values().find(is).map(|class| class.name.clone());
                name.inspect(|name| drop(self.known.remove(name))).into_iter().collect()
            }
            WatchEvent::Error(error) => {
                // Without its CRD a version has no classes; known ones stay. Without permission to
                // read v1beta1 there are none of it.
                self.listed_versions[crd_version as usize] |= match error {
                    ApiError::NotFound => true,
                    ApiError::Forbidden(_) => crd_version == CrdVersion::V1Beta1,
                    _ => false,
                };
                Vec::new()
            }
        }
    }

    pub fn upsert(&mut self, class: Class) -> Option<ClassName> {
        let name = class.name.clone();
        let known = self.known.get(&name);
        if known.is_some_and(|k| k.uid == class.uid && k.revision >= class.revision) {
            return None;
        }
        self.known.insert(name.clone(), class.into());
        Some(name)
    }

    /// Whether the classes of both versions have been listed.
    pub fn versions_listed(&self) -> bool {
        self.listed_versions == [true, true]
    }

    /// Whether the streams of all classes have been listed, or cannot be.
    pub fn all_synced(&self) -> bool {
        self.versions_listed()
            && self.watched.values().all(|watched| watched.state != WatchState::Unknown)
    }

    pub fn names(&self) -> Vec<ClassName> {
        self.known.keys().cloned().collect()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Class>> {
        self.known.get(name)
    }

    pub fn watched(&self, name: &str) -> Option<&WatchedClass> {
        self.watched.get(name)
    }

    /// Records the state of the watch of a class's streams. Returns whether it changed.
    pub fn set_watch_state(
        &mut self,
        name: &str,
        stop: &CancellationToken,
        state: WatchState,
    ) -> bool {
        let Some(watched) = self.watched.get_mut(name) else { return false };
        // The watch has been replaced.
        if stop.is_cancelled() || watched.state == state {
            return false;
        }
        watched.state = state;
        true
    }

    /// When the status of a class may be written; none: now. Limits the writes of two operators
    /// that disagree about it.
    pub fn status_write_at(&self, name: &str) -> Option<Instant> {
        let at = *self.written.get(name)? + WRITE;
        (at > Instant::now()).then_some(at)
    }

    pub fn status_written(&mut self, name: &ClassName) {
        self.written.retain(|name, _| self.known.contains_key(name));
        self.written.insert(name.clone(), Instant::now());
    }

    /// A watched class that names the same streams.
    pub fn conflicting_class(&self, class: &Class) -> Option<&Arc<Class>> {
        self.watched
            .values()
            .map(|watched| &watched.class)
            .find(|other| other.name != class.name && overlap(other, class))
    }

    /// Plans the changes of watches that the known classes require.
    pub fn watch_changes(&mut self, parent: &CancellationToken) -> Vec<WatchChange> {
        let mut watch_changes = Vec::new();
        let known = &self.known;
        self.watched.retain(|name, watched| {
            let now = known.get(name).filter(|now| spec_problem(now).is_none());
            let stays = now.is_some_and(|now| {
                now.uid == watched.class.uid && now.names_the_same_as(&watched.class)
            });
            if !stays {
                watched.stop.cancel();
                watch_changes.push(WatchChange::Stop(watched.class.clone()));
            }
            stays
        });
        // Classes that an earlier operator found ready take precedence.
        let mut order: Vec<Arc<Class>> = self.known.values().cloned().collect();
        order.sort_by_key(|class| (!class.phase.eq_ignore_ascii_case("ready"), class.name.clone()));
        for class in order {
            if spec_problem(&class).is_some() || self.conflicting_class(&class).is_some() {
                continue;
            }
            let stop = parent.child_token();
            match self.watched.get_mut(&class.name) {
                None => {
                    let watched = WatchedClass {
                        class: class.clone(),
                        stop: stop.clone(),
                        state: WatchState::Unknown,
                    };
                    self.watched.insert(class.name.clone(), watched);
                    watch_changes.push(WatchChange::Start(class, stop));
                }
                Some(watched) if watched.class.secret_refs != class.secret_refs => {
                    watched.stop.cancel();
                    watched.stop = stop.clone();
                    watched.class = class.clone();
                    watch_changes.push(WatchChange::Restart(class, stop));
                }
                Some(watched) => watched.class = class,
            }
        }
        watch_changes
    }
}

fn class(object: Object) -> Option<Class> {
    match object {
        Object::Class(class) => Some(class),
        _ => None,
    }
}
