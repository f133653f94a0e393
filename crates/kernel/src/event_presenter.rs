//! What a caller is shown of events.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::event_tail::{EventPart, TailEvent};
use crate::http::can_see;
use crate::identity::Principal;
use crate::kind::{Kinds, Presenter};
use crate::{Json, Object};

/// Shows events to one caller, or to all members of one organisation. Events of other organisations
/// are left out before, by the reader's filter.
pub struct EventPresenter {
    kinds: Kinds,
    who: Arc<Principal>,
    /// How objects of a kind are presented. Kept for as long as the caller is connected.
    presenters: HashMap<String, Option<Presenter>>,
}

/// What is shown of an event.
pub enum Shown<'e> {
    Whole,
    Part(&'e EventPart),
}

impl EventPresenter {
    pub fn new(kinds: &Kinds, who: Arc<Principal>) -> EventPresenter {
        EventPresenter { kinds: kinds.clone(), who, presenters: HashMap::new() }
    }

    /// Returns what is shown of an event; `None` if nothing.
    pub fn present<'e>(&mut self, event: &'e TailEvent) -> Option<Shown<'e>> {
        if self.who.is_admin() {
            return Some(Shown::Whole);
        }
        let data = &event.event.data;
        if self.who.org.is_empty() && !can_see(&self.who, &data.parse().ok()?) {
            return None;
        }
        match self.presenter(event.event.subject.kind())? {
            Presenter::Whole => Some(Shown::Whole),
            Presenter::Hidden => None,
            // It has no object: how far a step is says nothing of what the part leaves out.
            Presenter::Part(part) if part.allows(&self.who) && event.event.is_progress() => {
                Some(Shown::Whole)
            }
            Presenter::Part(part) if part.allows(&self.who) => {
                let shown = || {
                    let object: Object = data.parse().ok()?;
                    let data = Json::encode(&part.of(&object)?);
                    Some(EventPart { data, encoded: OnceLock::new() })
                };
                event.part.get_or_init(shown).as_ref().map(Shown::Part)
            }
            Presenter::Part(_) => None,
        }
    }

    fn presenter(&mut self, kind: &str) -> Option<Presenter> {
        if let Some(known) = self.presenters.get(kind) {
            return known.clone();
        }
        let found = self.kinds.find(kind).map(|kind| kind.present);
        self.presenters.insert(kind.to_owned(), found.clone());
        found
    }
}
