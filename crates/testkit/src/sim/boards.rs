//! Boards to which senders append notes: commands over the registry, each sent again over another
//! transport until its end is known, some of them rejected for good. The notes are a blob.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use kernel::blob::Blobs;
use kernel::change::Write;
use kernel::command::{Command, CommandContext, Decided, Envelope, Origin, Sender};
use kernel::identity::{self, Action, Identity, Principal};
use kernel::outbound::{self, Outbound};
use kernel::telemetry::Metrics;
use kernel::{
    Ambient, App, AppState, Change, Error, Json, Key, Object, Refusal, Result, Store as _,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use super::flaky::Flaky;
use super::{Broken, World};

const KIND: &str = "board";
const BOARDS: usize = 2;
const NOTES: &str = "notes";
/// How long a sender waits before it sends the same command again.
const RESEND: Duration = Duration::from_secs(2);

/// What the senders know for sure.
#[derive(Default)]
pub struct Sent {
    appended: Mutex<BTreeSet<String>>,
    rejected: Mutex<BTreeSet<String>>,
}

pub async fn create(world: &World) {
    for n in 0..BOARDS {
        let key = Key::new(KIND, &n.to_string());
        let object = Object::new(key, "acme", "alice", "a board", "ready", world.now());
        let change = Change { write: Some(Write::create(object, "created")), ..Change::default() };
        let verdicts = world.memory.commit_all(vec![change], world.now()).await;
        verdicts.expect("the store answers").remove(0).expect("it is created");
    }
}

/// Appends a note, unless the board is busy: that passes.
struct Append;

#[derive(Deserialize)]
struct Note {
    id: String,
}

#[async_trait]
impl Command for Append {
    const NAME: &'static str = "board.append";
    const ACTION: Action = Action::Write;
    type Body = Note;
    type Reply = usize;

    async fn decide(&self, cx: &CommandContext<'_>, note: Note) -> Result<Decided<usize>> {
        let key = &cx.subject()?.key;
        let blobs = &cx.app.blobs;
        let before = blobs.get(cx.app.store.as_ref(), key, NOTES).await?;
        let (version, mut notes) = match before {
            Some(blob) => (blob.version, String::from_utf8_lossy(&blob.data).into_owned()),
            None => (0, String::new()),
        };
        let count = notes.lines().count();
        if count % 5 == 2 && note.id.ends_with('3') {
            return Err(Error::Conflict("the board is busy".into()));
        }
        notes.push_str(&note.id);
        notes.push('\n');
        let blobs = blobs.put(key, NOTES, Some(version), notes.as_bytes(), true)?;
        Ok(Decided::new(200, count + 1, None).change(Change { blobs, ..Change::default() }))
    }
}

/// The app of a process over a bad network.
pub fn app(store: Arc<Flaky>, ambient: Ambient) -> App {
    static KEYS: OnceLock<tempfile::TempDir> = OnceLock::new();
    let keys = KEYS.get_or_init(|| tempfile::tempdir().expect("a temporary directory"));
    let outbound = Outbound::new(outbound::Config::default(), ambient.clone(), Arc::new(|_| {}));
    let outbound = outbound.expect("the default settings are valid");
    let url = "http://sim";
    let config = identity::Config::default();
    let identity = Identity::start(config, keys.path(), url, ambient.clone(), &outbound);
    App::new(AppState {
        store,
        blobs: Blobs::new(&[7; 32], ambient.clone()),
        ambient,
        identity: identity.expect("the default settings are valid"),
        outbound,
        metrics: Arc::new(Metrics::new()),
        url: url.into(),
    })
}

pub async fn run(world: Arc<World>, sent: Arc<Sent>, number: usize, seed: u64) {
    let store = Arc::new(Flaky::new(world.clone()));
    let clock = store.clone();
    let app = app(store.clone(), Ambient::seeded(move || clock.now(), seed));
    app.commands().add(Arc::new(Append)).expect("it is the only one");
    for turn in 0.. {
        tokio::time::sleep(world.millis(0, 4000)).await;
        if world.calm.is_cancelled() {
            return;
        }
        let id = format!("sender-{number}/{turn}");
        let key = Key::new(KIND, &world.pick(BOARDS).to_string());
        let body = Json::encode(&json!({ "id": id }));
        let append = Envelope { id: Some(id), ..Envelope::new(Append::NAME, Some(key), body) };
        // Its own crash: what it sent may have happened, nobody knows.
        tokio::select! {
            biased;
            () = send(&world, &app, &sent, &append) => {}
            () = store.crashed() => return,
        }
    }
}

/// Sends until the end is known, over any transport; then perhaps once more, as a redelivery.
async fn send(world: &World, app: &App, sent: &Sent, append: &Envelope) {
    let principal =
        Principal { subject: "alice".into(), org: "acme".into(), ..Principal::default() };
    let id = append.id.clone().unwrap_or_default();
    let mut deliveries = 1 + world.pick(2);
    while deliveries > 0 {
        let bus = world.pick(2) == 0;
        let origin = if bus { Origin::Bus("sim".into()) } else { Origin::Http(None) };
        let sender = Sender { principal: &principal, origin: &origin, request_id: "", trace: None };
        let end = match app.commands().execute(app, sender, append).await {
            Ok(answer) if answer.reply.status == 200 => {
                sent.appended.lock().insert(id.clone());
                true
            }
            // It was rejected before.
            Ok(_) => true,
            Err(Error::Conflict(why)) if bus => {
                let why = Error::Conflict(why);
                let stored = app.commands().reject(app, sender, append, &why).await.is_ok();
                // Another delivery may have been carried out meanwhile.
                if stored && rejected(world, &id) {
                    sent.rejected.lock().insert(id.clone());
                }
                stored
            }
            // Over HTTP the caller may send it again, and it may succeed.
            Err(Error::Conflict(_) | Error::Refused(Refusal::Stale { .. })) => false,
            Err(error) if error.class() == kernel::Class::Transient => false,
            Err(error) => {
                let unexpected = Broken(format!("{id}: {error}"));
                world.broken.lock().get_or_insert(unexpected);
                return;
            }
        };
        deliveries -= usize::from(end);
        if world.calm.is_cancelled() {
            return;
        }
        tokio::time::sleep(RESEND).await;
    }
}

fn rejected(world: &World, id: &str) -> bool {
    world.memory.look(|tables| {
        let record =
            tables.commands.iter().find(|(stored, _)| stored.starts_with(&format!("{id} ")));
        record.is_none_or(|(_, (_, record))| record.reply.status != 200)
    })
}

/// Each note is there once if it was acknowledged, and never if it was rejected.
pub async fn check(world: &World, sent: &Sent) -> Result<(), Broken> {
    let blobs = Blobs::new(&[7; 32], Ambient::system());
    let mut there = BTreeSet::new();
    for n in 0..BOARDS {
        let key = Key::new(KIND, &n.to_string());
        let notes = blobs.get(&*world.memory, &key, NOTES).await;
        let notes = notes.map_err(|error| Broken(error.to_string()))?;
        let notes = notes.map(|blob| String::from_utf8_lossy(&blob.data).into_owned());
        for note in notes.unwrap_or_default().lines() {
            if !there.insert(note.to_owned()) {
                return Err(Broken(format!("{note} was carried out twice")));
            }
        }
    }
    if let Some(lost) = sent.appended.lock().difference(&there).next() {
        return Err(Broken(format!("{lost} was acknowledged, but its note is not there")));
    }
    if let Some(done) = sent.rejected.lock().intersection(&there).next() {
        return Err(Broken(format!("{done} was rejected, and carried out all the same")));
    }
    Ok(())
}
