//! The classes: which of them are followed, and how each stands.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Object, Refused, Told};
use crate::index::class_place;
use crate::model::class::Class;
use crate::model::{ClassName, Line};

/// A status is written at most this often.
const WRITE: Duration = Duration::from_secs(1);

/// What is known of the streams of a class.
#[derive(Debug, Clone, PartialEq)]
pub enum Sight {
    /// Nothing yet.
    Unknown,
    Clear,
    Trouble(Refused),
}

pub struct Followed {
    pub class: Arc<Class>,
    pub stop: CancellationToken,
    pub sight: Sight,
}

#[derive(Default)]
pub struct Classes {
    known: BTreeMap<ClassName, Arc<Class>>,
    followed: HashMap<ClassName, Followed>,
    /// When the status of each was last written.
    written: HashMap<ClassName, Instant>,
    /// Whether a line's classes have been listed, or are known not to be there.
    lines: [bool; 2],
}

/// What has to change so that the right classes are followed.
#[derive(Debug, PartialEq)]
pub enum Step {
    Follow(Arc<Class>, CancellationToken),
    /// Nothing of it is known any more; its streams stay as they are.
    Leave(Arc<Class>),
    /// The same streams, but something else about them is different.
    Renew(Arc<Class>, CancellationToken),
}

impl Classes {
    /// Takes in what a watch tells; the classes that changed.
    pub fn told(&mut self, line: Line, told: Told) -> Vec<ClassName> {
        match told {
            Told::All(objects) => {
                self.lines[line as usize] = true;
                let mut changed: Vec<ClassName> = Vec::new();
                let there: Vec<Class> = objects.into_iter().filter_map(class).collect();
                let gone = |known: &Arc<Class>| {
                    known.line == line && !there.iter().any(|class| class.name == known.name)
                };
                changed.extend(self.known.values().filter(|k| gone(k)).map(|k| k.name.clone()));
                self.known.retain(|name, _| !changed.contains(name));
                for class in there {
                    changed.extend(self.learnt(class));
                }
                changed
            }
            Told::Is(object) => {
                class(*object).and_then(|class| self.learnt(class)).into_iter().collect()
            }
            Told::Gone(place, uid, _) => {
                let is = |class: &&Arc<Class>| {
                    class.line == line && class.uid == *uid && class_place(&class.name) == place
                };
                let name = self.known.values().find(is).map(|class| class.name.clone());
                name.inspect(|name| drop(self.known.remove(name))).into_iter().collect()
            }
            Told::Trouble(refused) => {
                // Without its CRD a line has no classes; what is known already stays. Who may not
                // look for the older line has none of it.
                self.lines[line as usize] |= match refused {
                    Refused::NotFound => true,
                    Refused::Forbidden(_) => line == Line::Beta,
                    _ => false,
                };
                Vec::new()
            }
        }
    }

    pub fn learnt(&mut self, class: Class) -> Option<ClassName> {
        let name = class.name.clone();
        let known = self.known.get(&name);
        if known.is_some_and(|k| k.uid == class.uid && k.revision >= class.revision) {
            return None;
        }
        self.known.insert(name.clone(), class.into());
        Some(name)
    }

    /// Whether both lines have been listed.
    pub fn listed(&self) -> bool {
        self.lines == [true, true]
    }

    /// Whether all streams of all classes are known, or known not to be knowable.
    pub fn clear(&self) -> bool {
        self.listed() && self.followed.values().all(|followed| followed.sight != Sight::Unknown)
    }

    pub fn names(&self) -> Vec<ClassName> {
        self.known.keys().cloned().collect()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Class>> {
        self.known.get(name)
    }

    pub fn followed(&self, name: &str) -> Option<&Followed> {
        self.followed.get(name)
    }

    /// What a watch of a class's streams has come to; whether that is new.
    pub fn sees(&mut self, name: &str, stop: &CancellationToken, sight: Sight) -> bool {
        let Some(followed) = self.followed.get_mut(name) else { return false };
        // Of a watch that has been replaced.
        if stop.is_cancelled() || followed.sight == sight {
            return false;
        }
        followed.sight = sight;
        true
    }

    /// When the status of a class may be written; none: now. Two operators that share it by
    /// mistake, and see different things, do not write without end.
    pub fn write_at(&self, name: &str) -> Option<Instant> {
        let at = *self.written.get(name)? + WRITE;
        (at > Instant::now()).then_some(at)
    }

    pub fn wrote(&mut self, name: &ClassName) {
        self.written.retain(|name, _| self.known.contains_key(name));
        self.written.insert(name.clone(), Instant::now());
    }

    /// Who names the same streams and goes before it.
    pub fn rival(&self, class: &Class) -> Option<&Arc<Class>> {
        self.followed
            .values()
            .map(|followed| &followed.class)
            .find(|other| other.name != class.name && overlap(other, class))
    }

    /// Brings what is followed in line with what is known.
    pub fn steps(&mut self, parent: &CancellationToken) -> Vec<Step> {
        let mut steps = Vec::new();
        let known = &self.known;
        self.followed.retain(|name, followed| {
            let now = known.get(name).filter(|now| problem(now).is_none());
            let stays = now.is_some_and(|now| {
                now.uid == followed.class.uid && now.names_the_same_as(&followed.class)
            });
            if !stays {
                followed.stop.cancel();
                steps.push(Step::Leave(followed.class.clone()));
            }
            stays
        });
        // Who was found ready by an earlier operator goes before who was not.
        let mut order: Vec<Arc<Class>> = self.known.values().cloned().collect();
        order.sort_by_key(|class| (!class.phase.eq_ignore_ascii_case("ready"), class.name.clone()));
        for class in order {
            if problem(&class).is_some() || self.rival(&class).is_some() {
                continue;
            }
            let stop = parent.child_token();
            match self.followed.get_mut(&class.name) {
                None => {
                    let followed = Followed {
                        class: class.clone(),
                        stop: stop.clone(),
                        sight: Sight::Unknown,
                    };
                    self.followed.insert(class.name.clone(), followed);
                    steps.push(Step::Follow(class, stop));
                }
                Some(followed) if followed.class.secret_refs != class.secret_refs => {
                    followed.stop.cancel();
                    followed.stop = stop.clone();
                    followed.class = class.clone();
                    steps.push(Step::Renew(class, stop));
                }
                Some(followed) => followed.class = class,
            }
        }
        steps
    }
}

fn class(object: Object) -> Option<Class> {
    match object {
        Object::Class(class) => Some(class),
        _ => None,
    }
}

/// What is wrong with a class, and where.
pub fn problem(class: &Class) -> Option<String> {
    let fields = [
        ("apiVersion", class.version.as_str(), "such as v1"),
        ("kindRef", &class.kind, "the kind of its streams"),
        ("pluralName", &class.plural, "the plural in the kind's CRD"),
    ];
    let (field, _, what) = fields.into_iter().find(|(_, value, _)| value.is_empty())?;
    Some(format!("spec.{field} is empty: {what}"))
}

/// Jobs are labelled with the kind alone, so two groups with one kind are too much alike.
fn overlap(a: &Class, b: &Class) -> bool {
    let apart = matches!((&a.namespace, &b.namespace), (Some(a), Some(b)) if a != b);
    let same = a.kind == b.kind || (&a.group, &a.plural) == (&b.group, &b.plural);
    same && !apart
}
