//! An intake with a command that does what a test says, in a server with a clock that a test sets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bus::ports::inward::{Handler as _, Incoming, Reply, ReplyTo, Settled};
use bus::work::intake::{ISSUER, Intake};
use kernel::blob::Blobs;
use kernel::change::EventDraft;
use kernel::command::{Command, CommandContext, Decided};
use kernel::identity::builtin::Kind;
use kernel::identity::{self, Action, Identity, Principal};
use kernel::outbound::{self, Outbound};
use kernel::telemetry::Metrics;
use kernel::{Ambient, App, AppState, Change, Error, Key, Result, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::Memory;
use tokio::sync::mpsc;

/// Adds a note, unless the script has an error for it.
struct Add(Arc<Mutex<VecDeque<Error>>>);

#[derive(Deserialize)]
struct Note {}

#[async_trait]
impl Command for Add {
    const NAME: &'static str = "note.add";
    const ACTION: Action = Action::Write;
    type Body = Note;
    type Reply = u32;

    async fn decide(&self, cx: &CommandContext<'_>, _: Note) -> Result<Decided<u32>> {
        if let Some(error) = self.0.lock().pop_front() {
            return Err(error);
        }
        let (kind, subject) = ("mainstay.note.added".into(), Key::new("note", "all"));
        let event = EventDraft { kind, subject, org: cx.principal.org.clone(), data: None };
        Ok(Decided::new(200, 1, None).change(Change { event: Some(event), ..Change::default() }))
    }
}

pub struct Stage {
    pub app: App,
    clock: Arc<AtomicI64>,
    script: Arc<Mutex<VecDeque<Error>>>,
    intake: Intake,
}

impl Stage {
    pub fn new() -> Stage {
        outbound::install_tls();
        let clock = Arc::new(AtomicI64::new(Ambient::system().now().0));
        let now = clock.clone();
        let ambient = Ambient::seeded(move || Timestamp(now.load(Ordering::Relaxed)), 7);
        let outbound =
            Outbound::new(outbound::Config::default(), ambient.clone(), Arc::new(|_| {})).unwrap();
        let (dir, url) = (tempfile::tempdir().unwrap(), "http://localhost");
        let config = identity::Config::default();
        let identity = Identity::start(config, dir.path(), url, ambient.clone(), &outbound);
        let app = App::new(AppState {
            store: Arc::new(Memory::default()),
            blobs: Blobs::new(&[7; 32], ambient.clone()),
            ambient,
            identity: identity.unwrap(),
            outbound,
            metrics: Arc::new(Metrics::new()),
            url: url.into(),
        });
        let script = Arc::<Mutex<VecDeque<Error>>>::default();
        app.commands().add(Arc::new(Add(script.clone()))).unwrap();
        let orders = Principal {
            subject: "orders".into(),
            issuer: ISSUER.into(),
            org: "acme".into(),
            ..Principal::default()
        };
        let intake = Intake {
            app: app.clone(),
            consumer: "test".into(),
            identities: [("orders".to_owned(), orders)].into(),
            commands_days: 7,
            followers: Default::default(),
            stats: Default::default(),
            stop: Default::default(),
        };
        Stage { app, clock, script, intake }
    }

    /// The next tries of the command fail like this.
    pub fn fail(&self, errors: impl IntoIterator<Item = Error>) {
        self.script.lock().extend(errors);
    }

    /// How many of these errors are left.
    pub fn left(&self) -> usize {
        self.script.lock().len()
    }

    pub fn pass(&self, time: Duration) {
        self.clock.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }

    pub fn token(&self, subject: &str, lasts: Duration) -> String {
        let who = Principal { subject: subject.into(), org: "acme".into(), ..Principal::default() };
        let signer = self.app.identity.builtin().unwrap().signer();
        signer.issue(&who, "tests", lasts, Kind::Access).unwrap()
    }

    pub fn message(&self, id: &str) -> Value {
        json!({"id": id, "type": Add::NAME, "issued_at": self.app.ambient.now(), "body": {}})
    }

    /// Handles a message, and returns the answers to it.
    pub async fn handle(&self, message: &Value, author: Option<&str>) -> Vec<Value> {
        let (replies, mut answers) = mpsc::channel(9);
        let incoming = Incoming {
            body: message.to_string().into(),
            author: author.map(Into::into),
            traceparent: None,
            reply_to: Some(ReplyTo { address: "answers".into(), correlation_id: None }),
            bare: None,
        };
        assert_eq!(self.intake.handle(incoming, &replies).await, Settled::Done);
        let answers = std::iter::from_fn(|| answers.try_recv().ok());
        answers.map(|Reply { body, .. }| serde_json::from_slice(&body).unwrap()).collect()
    }

    /// As the configured sender.
    pub async fn orders(&self, id: &str) -> Value {
        self.handle(&self.message(id), Some("orders")).await.remove(0)
    }

    /// Who did what, as the audit log has it: the actor and the outcome.
    pub async fn audit(&self) -> Vec<(String, String)> {
        let entries = self.app.store.audit(&Default::default(), 100).await.unwrap();
        entries.into_iter().map(|one| (one.entry.actor, one.entry.outcome)).collect()
    }
}
