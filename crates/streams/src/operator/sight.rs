//! Which watches have told what there is: nobody acts on half a picture.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::watch;

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
    /// What was refused last, until it works again.
    refused: Option<String>,
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
        let before = state.refused.clone();
        match told {
            // The older line is looked for, and whoever may not look has none of it.
            Told::Trouble(Refused::Forbidden(_)) if *what == Watched::Templates(Line::Beta) => {
                state.settled = true;
            }
            Told::All(_) | Told::Trouble(Refused::NotFound) => {
                *state = State { settled: true, refused: None };
            }
            Told::Trouble(refused @ (Refused::Forbidden(_) | Refused::Invalid(_))) => {
                state.refused = Some(refused.to_string());
            }
            _ => {}
        }
        let changed = before != state.refused;
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

    /// What is not allowed, in Kubernetes' words, which name the verb and the resource.
    pub fn barred(&self) -> Option<String> {
        let all = self.told.lock();
        all.values().find_map(|state| state.refused.clone())
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
