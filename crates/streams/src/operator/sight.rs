//! Which watches have told what there is: nobody acts on half a picture.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{Refused, Told, Watched};
use crate::model::Line;

/// All that must be known before anything is decided, beside the classes.
pub const NEEDED: [Watched; 5] = [
    Watched::Jobs,
    Watched::Crons,
    Watched::Requests,
    Watched::Templates(Line::V1),
    Watched::Templates(Line::Beta),
];

pub struct Sight {
    /// The last word of each.
    told: Mutex<BTreeMap<&'static str, State>>,
    settled: watch::Sender<bool>,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// It has been listed, or is known not to be there.
    settled: bool,
    /// What was refused last.
    refused: Option<String>,
    /// Since when it works again: a list may succeed where the watch after it is refused.
    works: Option<Instant>,
}

/// So long it must have worked.
const WORKS: Duration = Duration::from_secs(2);

/// What keeps the operator from acting.
pub struct Barred {
    /// In Kubernetes' words, which name the verb and the resource.
    pub said: String,
    /// When it may be over.
    pub look_at: Option<Instant>,
}

impl Default for Sight {
    fn default() -> Sight {
        Sight { told: Mutex::default(), settled: watch::Sender::new(false) }
    }
}

impl Sight {
    /// Whether what keeps the operator from acting is something else now.
    pub fn told(&self, what: &Watched, told: &Told) -> bool {
        if !matches!(told, Told::All(_) | Told::Trouble(_)) {
            return false;
        }
        let mut all = self.told.lock();
        let state = all.entry(name(what)).or_default();
        let before = (state.refused.clone(), state.works);
        match told {
            // The older line is looked for, and whoever may not look has none of it.
            Told::Trouble(Refused::Forbidden(_)) if *what == Watched::Templates(Line::Beta) => {
                state.settled = true;
            }
            Told::All(_) | Told::Trouble(Refused::NotFound) => {
                state.settled = true;
                state.works = state.works.or_else(|| Some(Instant::now()));
            }
            Told::Trouble(refused @ (Refused::Forbidden(_) | Refused::Invalid(_))) => {
                state.refused = Some(refused.to_string());
                state.works = None;
            }
            _ => {}
        }
        let changed = state.refused.is_some() && before != (state.refused.clone(), state.works);
        let settled = NEEDED.iter().all(|what| all.get(name(what)).is_some_and(|s| s.settled));
        drop(all);
        if settled {
            self.settled.send_if_modified(|now| !std::mem::replace(now, true));
        }
        changed
    }

    /// True from when everything that is needed has been listed once.
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    pub fn barred(&self) -> Option<Barred> {
        let all = self.told.lock();
        all.values().find_map(|state| {
            let said = state.refused.clone()?;
            let look_at = state.works.map(|works| works + WORKS);
            look_at.is_none_or(|at| at > Instant::now()).then_some(Barred { said, look_at })
        })
    }
}

fn name(what: &Watched) -> &'static str {
    match what {
        Watched::Classes(Line::V1) => "classes",
        Watched::Classes(Line::Beta) => "classes of v1beta1",
        Watched::Streams(_) => "streams",
        Watched::Jobs => "jobs",
        Watched::Crons => "cronjobs",
        Watched::Requests => "backfillrequests",
        Watched::Templates(Line::V1) => "templates",
        Watched::Templates(Line::Beta) => "templates of v1beta1",
        Watched::Secrets => "secrets",
    }
}
