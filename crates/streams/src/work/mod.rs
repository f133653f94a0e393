//! One handler for each command: it makes the requests, and what the API server answers goes into
//! the index at once, so that the next decision need not wait for a watch.
//!
//! Handlers may be called again with the same command: "it is there already" and "it is not there"
//! are answers.

mod job;
mod request;
mod stream;

use std::sync::Arc;

use jiff::Timestamp;
use kernel::Ambient;
use parking_lot::Mutex;

use crate::cluster::{Answer, Call, Cluster, Object, Refused, Told, Watched};
use crate::decide::command::{Mode, Why};
use crate::decide::{Command, Decision, decide};
use crate::index::Index;
use crate::model::class::Class;
use crate::model::stream::Stream;
use crate::model::{Key, Place};

/// Everything that a handler may use.
#[derive(Clone)]
pub struct Hands {
    pub cluster: Arc<dyn Cluster>,
    pub index: Arc<Mutex<Index>>,
    pub ambient: Ambient,
}

/// What came of a command.
#[derive(Debug, Default, PartialEq)]
pub struct Done {
    /// Streams that it may matter to, beside the one that it was for.
    pub touched: Vec<Key>,
    /// It was not carried out.
    pub refused: Option<Refused>,
}

impl Hands {
    /// Decides, and takes what the decision needs of what is limited, under one lock: no two
    /// streams take the last room for a backfill. Others may go on because of it.
    pub fn decide(&self, key: &Key) -> (Decision, Vec<Key>) {
        let now = self.now();
        let mut index = self.index.lock();
        // What an earlier attempt took and did not use, or not as far as is known.
        let touched = index.release_backfill(&key.place);
        let decision = decide(&index, key, now);
        index.waits(key, decision.waits_for_backfills);
        for command in &decision.commands {
            match command {
                Command::StartJob { mode: Mode::Backfill(_), .. } => {
                    index.reserve_backfill(&key.place);
                }
                Command::StopJob { running: true, why: Why::Changed, .. } => index.restarted(now),
                _ => {}
            }
        }
        (decision, touched)
    }

    pub async fn carry_out(&self, key: &Key, command: &Command) -> Done {
        let done = match command {
            Command::RequestInitialBackfill { manifest } => self.request_initial(manifest).await,
            Command::StartJob { manifest, .. } => self.start_job(manifest).await,
            Command::StopJob { uid, running, .. } => self.stop_job(key, uid, *running).await,
            Command::StartSchedule { manifest } => self.start_schedule(manifest).await,
            Command::StopSchedule { uid } => self.stop_schedule(key, uid).await,
            Command::AskFate { uid } => self.ask_fate(key, uid).await,
            Command::CompleteRequest { name } => self.complete_request(key, name).await,
            Command::RefuseRequest { request, why } => self.refuse_request(request, why).await,
            Command::RemoveRequest { request, uid } => self.remove_request(request, uid).await,
            Command::Annotate { name, value } => self.annotate(key, name, value.as_deref()).await,
            Command::SetStatus(status) => self.set_status(key, status).await,
            Command::Publish(happened) => self.publish(key, happened).await,
        };
        done.unwrap_or_else(|refused| self.not_done(key, command, refused))
    }

    fn not_done(&self, key: &Key, command: &Command, refused: Refused) -> Done {
        let backfill = matches!(command, Command::StartJob { mode: Mode::Backfill(_), .. });
        let touched = match refused {
            // No answer: it may be running, and is counted as if until a watch tells.
            Refused::Away(_) => Vec::new(),
            _ if backfill => self.index.lock().release_backfill(&key.place),
            _ => Vec::new(),
        };
        Done { touched, refused: Some(refused) }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ambient.now().millis()).unwrap_or_default()
    }

    /// A request whose answer is an object, or nothing to know.
    async fn learn(&self, call: Call) -> Result<Done, Refused> {
        match self.cluster.call(call).await? {
            Answer::Object(object) => Ok(self.learnt(*object)),
            _ => Ok(Done::default()),
        }
    }

    fn learnt(&self, object: Object) -> Done {
        Done { touched: self.index.lock().learnt(object), ..Done::default() }
    }

    /// A removal. One that is carried out at once is known at once; a watch tells of the others.
    async fn remove(&self, call: Call, watched: &Watched) -> Result<Done, Refused> {
        let Call::Delete { place, uid, .. } = &call else { return Ok(Done::default()) };
        let (place, uid) = (place.clone(), uid.clone());
        match self.cluster.call(call).await {
            Ok(Answer::Object(object)) => Ok(self.learnt(*object)),
            Ok(_) | Err(Refused::NotFound) => Ok(self.gone(watched, place, uid)),
            Err(refused) => Err(refused),
        }
    }

    fn gone(&self, watched: &Watched, place: Place, uid: Box<str>) -> Done {
        // The version is one that no other saying is older than: there is nothing after an end.
        let told = Told::Gone(place, uid, crate::model::meta::Revision::of(""));
        Done { touched: self.index.lock().told(watched, told), ..Done::default() }
    }

    fn stream(&self, key: &Key) -> Option<(Arc<Class>, Arc<Stream>)> {
        let index = self.index.lock();
        Some((index.class(&key.class)?.clone(), index.stream(key)?.clone()))
    }
}
