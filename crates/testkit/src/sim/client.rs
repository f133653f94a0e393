//! Clients that create, change and delete widgets, each act as a command that they send again
//! until they know its end, and write down what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::change::{CommandRecord, CommandReply, Refusal};
use kernel::queue::{QueueRow, State};
use kernel::store::commit;
use kernel::{Ambient, Change, Error, Json, Key, Object, Store, Timestamp};
use parking_lot::Mutex;

use super::flaky::Flaky;
use super::{ORGS, QUOTA, World};
use crate::widgets::decide;
use crate::widgets::model::{self, Request, Spec};

/// How long a client waits before it sends the same command again.
const CLIENT_WAIT: Duration = Duration::from_secs(2);

/// What the clients know for sure.
#[derive(Default)]
pub struct Ledger {
    /// Acknowledged creations, by command: which object it made.
    pub created: Mutex<BTreeMap<String, Key>>,
    /// Acknowledged changes of each widget, deletions among them.
    pub changed: Mutex<BTreeMap<Key, i64>>,
}

pub async fn run(world: Arc<World>, ledger: Arc<Ledger>, number: usize, seed: u64) {
    let store = Arc::new(Flaky::new(world.clone()));
    let clock = store.clone();
    let ambient = Ambient::seeded(move || clock.now(), seed);
    let (mut turn, mut newest) = (0, None);
    while !world.calm.is_cancelled() {
        tokio::time::sleep(world.millis(0, 3000)).await;
        turn += 1;
        let command = format!("client-{number}/{turn}");
        let act = act(&world, &ledger, &store, &ambient, &command, &mut newest);
        // A client's own crash: what it asked for may have happened, nobody knows.
        tokio::select! {
            biased;
            () = act => {}
            () = store.crashed() => return,
        }
    }
}

/// Changes every widget that an attempt is at, once the trouble is over: nothing but the driver
/// keeps those attempts from ending soon.
pub async fn change_all_at_work(world: &Arc<World>, ledger: &Ledger) {
    let store = Flaky::new(world.clone());
    let ambient = Ambient::seeded(|| Timestamp(0), 0);
    let running = |row: &&QueueRow| row.state == State::Running && row.key.kind() == model::KIND;
    let keys: Vec<Key> = world
        .memory
        .look(|tables| tables.queue.values().filter(running).map(|row| row.key.clone()).collect());
    for key in keys {
        if change(&store, &key, false, &format!("last/{key}"), &ambient).await.is_ok() {
            *ledger.changed.lock().entry(key).or_default() += 1;
        }
    }
}

/// What a client wants done.
enum Wish {
    Create(Request),
    Change { key: Key, deleting: bool },
}

/// Often changes the widget that it created last, which may still be at work.
async fn act(
    world: &World,
    ledger: &Ledger,
    store: &Flaky,
    ambient: &Ambient,
    command: &str,
    newest: &mut Option<Key>,
) {
    let known: Vec<Key> = ledger.created.lock().values().cloned().collect();
    let wish = if known.is_empty() || world.pick(10) < 4 {
        let org = ORGS[world.pick(2)].into();
        let hold_s = if world.pick(4) == 0 { 60 + world.pick(60) as u32 } else { 0 };
        let (fail_times, polls) = (world.pick(3) as i32, world.pick(3) as u32);
        let spec = Spec { size: 1, fail_times, hold_s, polls, ..Spec::default() };
        let (id, name) = (ambient.id(), format!("w{}", world.pick(8)));
        let depends_on = known.into_iter().filter(|_| world.pick(4) == 0).take(2).collect();
        Wish::Create(Request {
            id,
            org,
            owner: "alice".into(),
            name,
            spec,
            depends_on,
            ..Request::default()
        })
    } else {
        let any = known[world.pick(known.len())].clone();
        let key = newest.clone().filter(|_| world.pick(2) == 0).unwrap_or(any);
        Wish::Change { key, deleting: world.pick(3) == 0 }
    };
    let Some(key) = until_known(world, store, command, &wish, ambient).await else { return };
    match wish {
        Wish::Create(_) => {
            *newest = Some(key.clone());
            ledger.created.lock().insert(command.into(), key);
        }
        Wish::Change { .. } => *ledger.changed.lock().entry(key).or_default() += 1,
    }
}

/// Sends until there is an answer that is not "perhaps". `None`: it was refused, or given up.
async fn until_known(
    world: &World,
    store: &Flaky,
    command: &str,
    wish: &Wish,
    ambient: &Ambient,
) -> Option<Key> {
    loop {
        let sent = match wish {
            Wish::Create(request) => create(store, request, command, ambient).await,
            Wish::Change { key, deleting } => change(store, key, *deleting, command, ambient).await,
        };
        match sent {
            Ok(key) => return Some(key),
            Err(Error::Refused(Refusal::Repeated { reply: answer, .. })) => {
                return answer.body.parse().ok();
            }
            Err(Error::Unavailable { .. } | Error::Refused(Refusal::Stale { .. })) => {}
            // Refused now; but an earlier sending may have been carried out.
            Err(_) => return store.command(command).await.ok()??.reply.body.parse().ok(),
        }
        if world.calm.is_cancelled() {
            return None;
        }
        tokio::time::sleep(CLIENT_WAIT).await;
    }
}

fn command(id: &str, digest: &str, key: &Key) -> CommandRecord {
    let answer = CommandReply { status: 202, body: Json::encode(key) };
    CommandRecord {
        id: id.into(),
        digest: digest.into(),
        reply: answer,
        subject: Some(key.clone()),
    }
}

async fn create(
    store: &Flaky,
    request: &Request,
    id: &str,
    ambient: &Ambient,
) -> kernel::Result<Key> {
    let dependencies = store.get(&request.depends_on).await?;
    let (change, object) = decide::create(request.clone(), &dependencies, QUOTA, ambient.now())?;
    let change = Change { command: Some(command(id, "create", &object.key)), ..change };
    commit(store, change, ambient.now()).await?;
    Ok(object.key)
}

async fn change(
    store: &Flaky,
    key: &Key,
    deleting: bool,
    id: &str,
    ambient: &Ambient,
) -> kernel::Result<Key> {
    let object: Object = store
        .get(std::slice::from_ref(key))
        .await?
        .pop()
        .ok_or(Error::NotFound(key.to_string()))?;
    let before = model::spec(&object)?;
    let spec = Spec { size: before.size + 1, deleting, ..before };
    let change: Change = decide::respec(&object, "alice", &spec, ambient.now())?;
    commit(store, Change { command: Some(command(id, "change", key)), ..change }, ambient.now())
        .await?;
    Ok(key.clone())
}
