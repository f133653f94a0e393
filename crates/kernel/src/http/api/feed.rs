//! One reader's way through the event log: from where, which events, and only those that the
//! reader may see.

use std::sync::Arc;

use serde::Deserialize;

use super::super::Failure;
use crate::identity::{Principal, Visibility};
use crate::log::{Event, EventFilter};
use crate::{Error, Result, Store};

pub(super) struct Feed {
    store: Arc<dyn Store>,
    filter: EventFilter,
    /// Whoever has no organisation sees events of their own objects only.
    owner: Option<String>,
    /// The last event that was looked at.
    pub after: i64,
}

/// Some events, and whether there may be more at once.
pub(super) struct Batch {
    pub events: Vec<Event>,
    pub more: bool,
}

impl Feed {
    pub(super) fn new(
        store: Arc<dyn Store>,
        who: &Principal,
        mut filter: EventFilter,
        after: i64,
    ) -> Result<Feed> {
        let (org, owner) = match who.visibility() {
            Visibility::All => (None, None),
            Visibility::Org(org) => (Some(org), None),
            Visibility::Own(subject) => (Some(String::new()), Some(subject)),
        };
        if let Some(org) = org {
            if filter.org.as_ref().is_some_and(|asked| *asked != org) {
                return Err(Error::Forbidden("org: only your own organisation's events".into()));
            }
            filter.org = Some(org);
        }
        Ok(Feed { store, filter, owner, after })
    }

    /// Refuses a reader who would silently miss what is no longer kept.
    pub(super) async fn check_kept(&self) -> Result<(), Failure> {
        let oldest = match self.store.first_event().await? {
            Some(first) => first,
            None => self.store.head().await?.event_seq + 1,
        };
        match self.after + 1 < oldest {
            true => Err(Failure::gone(&format!("the event after {}", self.after), oldest)),
            false => Ok(()),
        }
    }

    /// The next events, which may be none although there are more to look at.
    pub(super) async fn next(&mut self, limit: usize) -> Result<Batch> {
        // Read before the events: whatever has a number up to here is in the log by then.
        let head = self.store.head().await?.event_seq;
        let mut events = self.store.events(self.after, &self.filter, limit).await?;
        let more = events.len() >= limit;
        let last = events.last().map_or(self.after, |event| event.seq);
        // What the filter left out need not be looked at again.
        self.after = if more { last } else { last.max(head) };
        if let Some(owner) = &self.owner {
            events.retain(|event| owned_by(event, owner));
        }
        Ok(Batch { events, more })
    }
}

fn owned_by(event: &Event, subject: &str) -> bool {
    #[derive(Deserialize)]
    struct Owned {
        owner: String,
    }
    event.data.parse::<Owned>().is_ok_and(|object| object.owner == subject)
}
