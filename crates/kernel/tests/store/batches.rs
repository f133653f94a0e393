//! Random changes: a batch decides as its changes would one by one, every store decides as the
//! model in memory does, and what a change promises holds after each.

use std::collections::BTreeMap;

use kernel::blob::{BlobInfo, BlobWrite, StoredBlob};
use kernel::change::{
    Cause, CommandRecord, CommandReply, CursorMove, Edge, LeaseFence, Outcome, Release, Take,
    Verdict, Wake, Work, Write,
};
use kernel::log::{AuditFilter, EventFilter};
use kernel::queue::QueueRow;
use kernel::store::WorkFilter;
use kernel::{Change, Json, Lane, Object};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use testkit::Memory;
use testkit::memory::Tables;
use testkit::stores::{self, Clock, Fresh};

use crate::queue::ask;
use crate::*;

/// A change in small numbers, so that changes meet.
#[derive(Debug, Clone)]
struct Draft {
    command: Option<(u8, u8)>,
    /// How, which object, at which revision.
    write: Option<(u8, u8, i64)>,
    expects: Option<(u8, i64)>,
    depends_on: Option<Vec<u8>>,
    /// What, which row, with which of its fences so far.
    work: Option<(u8, u8, usize)>,
    wakes: Vec<(u8, bool, i64)>,
    wakes_neighbours: (bool, bool),
    /// Counter, holder, amount, limit.
    takes: Vec<(u8, u8, i64, i64)>,
    releases: Vec<(u8, u8)>,
    lease: Option<i64>,
    /// How, of which object, which blob.
    blob: Option<(u8, u8, u8)>,
    /// Which cursor, with which fence.
    cursor: Option<(u8, i64)>,
}

#[derive(Debug, Clone)]
enum Op {
    Commit(Vec<Draft>),
    /// Everything that is due is claimed.
    Claim,
    Pass(i64),
}

fn draft() -> impl Strategy<Value = Draft> {
    let first = (
        weighted(0.2, (0..3_u8, 0..2_u8)),
        weighted(0.7, (0..3_u8, 0..4_u8, 1..4_i64)),
        weighted(0.1, (0..4_u8, 1..4_i64)),
        weighted(0.4, vec(0..4_u8, 0..3)),
        weighted(0.4, (0..8_u8, 0..4_u8, 0..2_usize)),
    );
    let second = (
        vec((0..4_u8, any::<bool>(), -50..200_i64), 0..2),
        any::<(bool, bool)>(),
        vec((0..3_u8, 0..3_u8, 0..5_i64, 0..8_i64), 0..3),
        vec((0..3_u8, 0..3_u8), 0..2),
        weighted(0.1, 1..3_i64),
        weighted(0.3, (0..4_u8, 0..4_u8, 0..2_u8)),
        weighted(0.2, (0..2_u8, 0..3_i64)),
    );
    (first, second).prop_map(|((command, write, expects, depends_on, work), second)| {
        let (wakes, wakes_neighbours, takes, releases, lease, blob, cursor) = second;
        Draft {
            command,
            write,
            expects,
            depends_on,
            work,
            wakes,
            wakes_neighbours,
            takes,
            releases,
            lease,
            blob,
            cursor,
        }
    })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => vec(draft(), 1..6).prop_map(Op::Commit),
        2 => Just(Op::Claim),
        1 => (0..20_000_i64).prop_map(Op::Pass),
    ];
    vec(op, 1..16)
}

fn id(n: u8) -> Key {
    key(&n.to_string())
}

impl Draft {
    fn change(&self, n: usize, fences: &BTreeMap<Key, Vec<i64>>) -> Change {
        let object = |which: u8, revision: i64| {
            let mut object = widget(&which.to_string(), ["acme", "umbrella"][which as usize % 2]);
            object.revision = revision;
            (object.name, object.phase) = (format!("name {n}"), format!("phase {n}"));
            object.status = Json::encode(&n);
            object
        };
        let write = self.write.map(|(how, which, revision)| match how {
            0 => Write::create(object(which, 1), "created"),
            1 => Write::update(object(which, revision), "updated"),
            _ => Write::transition(object(which, revision), "ready"),
        });
        let target = write.as_ref().map(|write| write.object.key.clone());
        let wake = |(which, urgent, due): &(u8, bool, i64)| Wake {
            lane: if *urgent { Lane::Urgent } else { Lane::Normal },
            ..wake(&id(*which), "acme", later(*due))
        };
        Change {
            follows: false,
            command: self.command.map(|(id, digest)| CommandRecord {
                id: id.to_string(),
                digest: digest.to_string(),
                reply: CommandReply { status: 200, body: Json::encode(&n) },
                subject: None,
            }),
            expects: self.expects.iter().map(|(which, revision)| (id(*which), *revision)).collect(),
            hop: false,
            settles: false,
            audit_archived: None,
            depends_on: target
                .as_ref()
                .and(self.depends_on.as_ref())
                .map(|to| to.iter().map(|to| Edge::new(id(*to), ["", "of"][n % 2])).collect()),
            work: self.work.map(|(what, which, age)| work(what, id(which), age, n, fences)),
            wakes: self.wakes.iter().map(wake).collect(),
            wake_dependents: self.wakes_neighbours.0,
            wake_dependencies: self.wakes_neighbours.1,
            takes: self
                .takes
                .iter()
                .map(|(counter, holder, amount, limit)| Take {
                    counter: counter.to_string(),
                    holder: holder.to_string(),
                    amount: *amount,
                    limit: *limit,
                })
                .collect(),
            releases: self
                .releases
                .iter()
                .map(|(counter, holder)| Release {
                    counter: counter.to_string(),
                    holder: holder.to_string(),
                })
                .collect(),
            leases: self.lease.iter().map(|f| LeaseFence { name: "l".into(), fence: *f }).collect(),
            event: None,
            audit: target.as_ref().map(|target| audit("change", target)),
            write,
            blobs: self.blob.iter().map(|(how, of, name)| blob(*how, id(*of), *name, n)).collect(),
            cursor: self.cursor.map(|(name, fence)| CursorMove {
                name: name.to_string(),
                seq: n as i64,
                detail: Json::encode(&n),
                fence,
            }),
            cause: n.is_multiple_of(2).then(|| Cause { command: Some(n.to_string()), trace: None }),
        }
    }
}

fn blob(how: u8, key: Key, name: u8, n: usize) -> BlobWrite {
    let name = name.to_string();
    let put = |expected| BlobWrite::Put {
        key: key.clone(),
        name: name.clone(),
        expected,
        data: StoredBlob {
            digest: format!("digest {n}"),
            size: n as i64,
            sealed: n % 2 == 1,
            parts: 1,
            data: vec![7; n].into(),
        },
    };
    match how {
        0 => put(None),
        1 => put(Some(0)),
        2 => put(Some(1)),
        _ => BlobWrite::Remove { name: n.is_multiple_of(2).then(|| name.clone()), key },
    }
}

fn work(what: u8, key: Key, age: usize, n: usize, fences: &BTreeMap<Key, Vec<i64>>) -> Work {
    let fence = fences.get(&key).and_then(|all| all.iter().rev().nth(age)).copied().unwrap_or(-1);
    let (at, reason) = (later(n as i64 * 10), format!("reason {n}"));
    let complete = |outcome| Work::Complete { key: key.clone(), fence, outcome };
    match what {
        0 => {
            let ttl = std::time::Duration::from_millis(n as u64 * 10);
            Work::RenewLease { key, fence, ttl, note: n.is_multiple_of(2).then_some(reason) }
        }
        1 => complete(Outcome::Done),
        2 => complete(Outcome::RequeueAt { at }),
        3 => complete(Outcome::Retry { at, reason }),
        4 => complete(Outcome::Stopped { reason }),
        5 => complete(Outcome::Pending { at, note: reason }),
        6 => Work::Pause { key, org: "acme".into(), reason },
        _ => Work::Resume { key },
    }
}

/// A store, and what a client of it has to remember.
struct Subject {
    store: std::sync::Arc<dyn Store>,
    fences: BTreeMap<Key, Vec<i64>>,
    changes: usize,
    now: Timestamp,
}

impl Subject {
    async fn new(store: std::sync::Arc<dyn Store>) -> Subject {
        store.lease("l", "someone", std::time::Duration::from_secs(1000)).await.unwrap();
        Subject { store, fences: BTreeMap::new(), changes: 0, now: NOW }
    }

    /// On a store in memory, whose clock is the one of the test.
    async fn model(clock: &Clock) -> (std::sync::Arc<Memory>, Subject) {
        clock.set(NOW);
        let memory = std::sync::Arc::new(Memory::new(clock.ambient(), None));
        (memory.clone(), Subject::new(memory).await)
    }

    fn changes(&mut self, drafts: &[Draft]) -> Vec<Change> {
        let from = self.changes;
        self.changes += drafts.len();
        let numbered = drafts.iter().enumerate();
        numbered.map(|(i, draft)| draft.change(from + i, &self.fences)).collect()
    }

    async fn commit(&mut self, drafts: &[Draft]) -> Vec<Verdict> {
        let changes = self.changes(drafts);
        self.store.commit_all(changes, self.now).await.unwrap()
    }

    async fn claim(&mut self) -> Vec<(Key, Lane, i32)> {
        let mut claims = self.store.claim(ask(100)).await.unwrap().claims;
        claims.sort_by(|a, b| a.key.cmp(&b.key));
        for claim in &claims {
            self.fences.entry(claim.key.clone()).or_default().push(claim.fence);
        }
        claims.into_iter().map(|claim| (claim.key, claim.lane, claim.attempt)).collect()
    }
}

/// All that two stores must agree on; neither numbers of claims nor places in lists.
struct CacheUpdate {
    objects: Vec<Object>,
    edges: Vec<(Key, Vec<Edge>)>,
    queue: Vec<QueueRow>,
    counters: Vec<Option<kernel::admission::Counter>>,
    commands: Vec<Option<CommandRecord>>,
    blobs: Vec<Vec<BlobInfo>>,
    cursors: Vec<CursorMove>,
    events: Vec<kernel::log::Event>,
    audit: Vec<kernel::log::AuditEntry>,
    head: kernel::log::LogHeads,
}

async fn snapshot(store: &dyn Store) -> CacheUpdate {
    let keys: Vec<Key> = (0..4).map(id).collect();
    let mut edges = Vec::new();
    for key in &keys {
        edges.push((key.clone(), store.dependencies(key).await.unwrap()));
    }
    let mut queue = store.work(&WorkFilter::default(), 100).await.unwrap();
    queue.sort_by(|a, b| a.key.cmp(&b.key));
    queue.iter_mut().for_each(|row| row.fence = 0);
    let (mut counters, mut commands) = (Vec::new(), Vec::new());
    for n in 0..3 {
        counters.push(store.counter(&n.to_string()).await.unwrap());
        commands.push(store.command(&n.to_string()).await.unwrap());
    }
    let mut blobs = Vec::new();
    for key in &keys {
        blobs.push(store.blobs(key).await.unwrap());
    }
    CacheUpdate {
        blobs,
        cursors: store.cursors().await.unwrap(),
        objects: store.get(&keys).await.unwrap(),
        edges,
        queue,
        counters,
        commands,
        events: store.events(0, &EventFilter::default(), 1000).await.unwrap(),
        audit: store.audit(&AuditFilter::default(), 1000).await.unwrap(),
        head: store.head().await.unwrap(),
    }
}

impl CacheUpdate {
    /// Compares part by part, so that a failure shows the part.
    fn assert_is(&self, other: &CacheUpdate, after: &Op) {
        assert_eq!(self.objects, other.objects, "after {after:?}");
        assert_eq!(self.edges, other.edges, "after {after:?}");
        assert_eq!(self.queue, other.queue, "after {after:?}");
        assert_eq!(self.counters, other.counters, "after {after:?}");
        assert_eq!(self.commands, other.commands, "after {after:?}");
        assert_eq!(self.blobs, other.blobs, "after {after:?}");
        assert_eq!(self.cursors, other.cursors, "after {after:?}");
        assert_eq!(self.events, other.events, "after {after:?}");
        assert_eq!(self.audit, other.audit, "after {after:?}");
        assert_eq!(self.head, other.head, "after {after:?}");
    }
}

/// What holds after every change.
fn check(before: &Tables, change: &Change, verdict: &Verdict, after: &Tables) {
    let mut held: BTreeMap<&str, i64> = BTreeMap::new();
    for ((counter, _), amount) in &after.holds {
        *held.entry(counter).or_default() += amount;
    }
    for (name, counter) in &after.counters {
        assert_eq!(counter.used, held.remove(name.as_str()).unwrap_or(0), "{name} is its holds");
        assert!(counter.used > 0, "{name} is {}", counter.used);
        let was = before.counters.get(name).map_or(0, |counter| counter.used);
        let mut limits = change.takes.iter().filter(|take| take.counter == *name);
        if counter.used > was {
            assert!(limits.all(|take| counter.used <= take.limit), "{name} exceeds: {change:?}");
        }
    }
    assert!(held.is_empty(), "held, and not counted: {held:?}");
    if verdict.is_err() {
        assert_eq!(
            format!("{before:?}"),
            format!("{after:?}"),
            "refused, and yet it did something"
        );
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// Cases, and as many attempts to make a failing one smaller.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        max_shrink_iters: cases * 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn a_batch_decides_as_its_changes_would_one_by_one(ops in ops()) {
        wait(async {
            let clock = Clock::default();
            let ((one, mut singly), (_, mut together)) =
                (Subject::model(&clock).await, Subject::model(&clock).await);
            for op in &ops {
                match op {
                    Op::Commit(drafts) => {
                        let mut verdicts = Vec::new();
                        for change in singly.changes(drafts) {
                            let before = one.tables();
                            let verdict = commit_at(&*one, change.clone(), singly.now).await;
                            check(&before, &change, &verdict, &one.tables());
                            verdicts.push(verdict);
                        }
                        assert_eq!(together.commit(drafts).await, verdicts);
                    }
                    Op::Claim => assert_eq!(singly.claim().await, together.claim().await),
                    Op::Pass(ms) => {
                        singly.now.0 += ms;
                        together.now.0 += ms;
                        clock.set(singly.now);
                    }
                }
                let (mut one_by_one, mut at_once) =
                    (snapshot(&*singly.store).await, snapshot(&*together.store).await);
                // Where the organisation of what is woken is not at hand, the waker's own is taken.
                one_by_one.queue.iter_mut().for_each(|row| row.org.clear());
                at_once.queue.iter_mut().for_each(|row| row.org.clear());
                one_by_one.assert_is(&at_once, op);
            }
        });
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn changes_that_belong_together_are_admitted_or_refused_together(ops in ops()) {
        wait(async {
            let memory = std::sync::Arc::new(Memory::default());
            let mut subject = Subject::new(memory.clone()).await;
            for op in &ops {
                let Op::Commit(drafts) = op else {
                    subject.claim().await;
                    continue;
                };
                let mut changes = subject.changes(drafts);
                changes.iter_mut().skip(1).for_each(|change| change.follows = true);
                let before = memory.tables();
                let verdicts = memory.commit_all(changes, subject.now).await.unwrap();
                if verdicts.iter().any(Result::is_err) {
                    assert!(verdicts.iter().all(Result::is_err), "{verdicts:?}");
                    assert_eq!(format!("{before:?}"), format!("{:?}", memory.tables()));
                }
            }
        });
    }
}

async fn commit_at(store: &dyn Store, change: Change, now: Timestamp) -> Verdict {
    store.commit_all(vec![change], now).await.unwrap().remove(0)
}

/// The same on a store and on the model.
async fn agree(fresh: &Fresh, ops: &[Op]) {
    fresh.set_clock(NOW).await;
    let mut real = Subject::new(fresh.store.clone()).await;
    let clock = Clock::default();
    let (_, mut model) = Subject::model(&clock).await;
    for op in ops {
        match op {
            Op::Commit(drafts) => {
                assert_eq!(real.commit(drafts).await, model.commit(drafts).await);
            }
            Op::Claim => assert_eq!(real.claim().await, model.claim().await),
            Op::Pass(ms) => {
                real.now.0 += ms;
                model.now.0 += ms;
                clock.set(model.now);
                fresh.set_clock(real.now).await;
            }
        }
        snapshot(&*real.store).await.assert_is(&snapshot(&*model.store).await, op);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn sqlite_decides_as_the_model_does(ops in ops()) {
        wait(async {
            if let Some(fresh) = stores::sqlite().await { agree(&fresh, &ops).await }
        });
    }
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn postgres_decides_as_the_model_does(ops in ops()) {
        wait(async {
            if let Some(fresh) = stores::postgres().await { agree(&fresh, &ops).await }
        });
    }
}
