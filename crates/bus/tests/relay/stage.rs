//! A sink with a scripted outlet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bus::config::{Filter, Mode, Start};
use bus::decide::pace;
use bus::model::{Cursor, Message, Position, Sink, Spec};
use bus::ports::out::cloudevents::CloudEvents;
use bus::ports::out::{Outlet, Refused, Sent};
use bus::store;
use bus::work::leadership::{Terms, lead};
use bus::work::relay::Relay;
use bus::work::source::{Render, Selection, Source};
use bus::work::state::SinkState;
use kernel::change::EventDraft;
use kernel::event_tail::EventTail;
use kernel::relay::Renderer;
use kernel::store::{Purge, commit};
use kernel::{Ambient, Change, Error, Json, Key, Result, Store, Timestamp};
use parking_lot::Mutex;
use testkit::stores::Fresh;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub const SINK: &str = "orders";
pub const LEASE: &str = "sink/orders";
const DEADLINE: Duration = Duration::from_secs(20);

/// What the next calls of the outlet do; without any, all is well.
pub enum Script {
    /// Opening fails.
    Closed,
    /// Everything is delivered, and nobody learns of it.
    LoseAck,
    /// Nothing is delivered.
    Fail,
    /// Everything is delivered, and the call does not return.
    Hang,
    /// The other side takes nothing until the test says so.
    Block,
}

/// The other side.
#[derive(Default)]
pub struct Other {
    pub script: Mutex<VecDeque<Script>>,
    /// Sequence numbers that are refused.
    pub refused: Mutex<Vec<i64>>,
    /// Whether it delivers the others of a batch with one that it refuses.
    pub all_or_nothing: bool,
    /// It keeps the position, as Kafka does.
    pub position: Mutex<Option<Position>>,
    pub delivered: Mutex<Vec<Message>>,
    /// How many messages each call had.
    pub calls: Mutex<Vec<usize>>,
    /// Whether a connection is open.
    pub open: AtomicBool,
    /// Why it takes nothing now.
    pub blocked: watch::Sender<Option<String>>,
}

impl Other {
    pub fn seqs(&self) -> Vec<i64> {
        self.delivered.lock().iter().map(|message| message.seq).collect()
    }
}

pub struct Scripted(pub Arc<Other>);

#[async_trait]
impl Outlet for Scripted {
    async fn open(&mut self) -> Result<Option<Position>> {
        let mut script = self.0.script.lock();
        if matches!(script.front(), Some(Script::Closed)) {
            script.pop_front();
            return Err(Error::unavailable("the other side", "it is closed"));
        }
        self.0.open.store(true, Ordering::SeqCst);
        Ok(*self.0.position.lock())
    }

    async fn send(&mut self, messages: &[Message], position: Position) -> Result<Sent> {
        let script = self.0.script.lock().pop_front();
        if matches!(script, Some(Script::Fail | Script::Closed)) {
            return Err(Error::unavailable("the other side", "it fails"));
        }
        if matches!(script, Some(Script::Block)) {
            self.0.blocked.send_replace(Some("low on memory".into()));
            self.0.blocked.subscribe().wait_for(Option::is_none).await.unwrap();
        }
        self.0.calls.lock().push(messages.len());
        let bad = self.0.refused.lock().clone();
        let is_bad = |(_, message): &(usize, &Message)| bad.contains(&message.seq);
        let refused: Vec<Refused> = messages
            .iter()
            .enumerate()
            .filter(is_bad)
            .map(|(index, _)| Refused { index, reason: "nobody wants it".into() })
            .collect();
        if self.0.all_or_nothing && !refused.is_empty() {
            return Ok(Sent::None(refused));
        }
        let good = messages.iter().filter(|message| !bad.contains(&message.seq));
        self.0.delivered.lock().extend(good.cloned());
        if let Some(there) = &mut *self.0.position.lock() {
            *there = position;
        }
        match script {
            Some(Script::Hang) => std::future::pending().await,
            None | Some(Script::Block) => Ok(refused.into()),
            Some(_) => Err(Error::unavailable("the other side", "its answer is lost")),
        }
    }

    fn blocked(&self) -> Option<watch::Receiver<Option<String>>> {
        Some(self.0.blocked.subscribe())
    }

    async fn close(&mut self) {
        self.0.open.store(false, Ordering::SeqCst);
    }
}

pub struct Stage {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub other: Arc<Other>,
    pub tell: watch::Sender<Spec>,
    pub filter: Filter,
    pub renderer: Option<Arc<dyn Renderer>>,
    pub start: Start,
    pub terms: Terms,
    pub park_after: Option<Duration>,
    pub state: Arc<SinkState>,
}

/// A running pump; stopped when dropped.
pub struct Pump {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Pump {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// As `kill -9`: nothing is finished.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl Stage {
    pub fn new(fresh: &Fresh, other: Other) -> Stage {
        Stage {
            store: fresh.store.clone(),
            ambient: Ambient::system(),
            other: Arc::new(other),
            tell: watch::channel(Spec::default()).0,
            filter: Filter::default(),
            renderer: None,
            start: Start::Earliest,
            terms: Terms::embedded(),
            park_after: None,
            state: Arc::default(),
        }
    }

    pub fn start(&self) -> Pump {
        let tail = EventTail::new(self.store.clone());
        let cloudevents = CloudEvents {
            mode: Mode::Structured,
            name: None,
            routing_key: None,
            url: "http://here".into(),
            bytes_max: 1000,
        };
        let render = match &self.renderer {
            Some(renderer) => Render::Domain(renderer.clone()),
            None => Render::CloudEvents(cloudevents),
        };
        let selection =
            Selection { filter: self.filter.clone(), org: None, render, presenter: None };
        let relay = Relay {
            id: SINK.into(),
            store: self.store.clone(),
            ambient: self.ambient.clone(),
            source: Source::new(&tail, selection),
            outlet: Box::new(Scripted(self.other.clone())),
            start: self.start,
            backoff: pace::BROKER,
            park_after: self.park_after,
            spec: self.tell.subscribe(),
            state: self.state.clone(),
        };
        let relay = Arc::new(tokio::sync::Mutex::new(relay));
        let (stop, store, ambient) =
            (CancellationToken::new(), self.store.clone(), self.ambient.clone());
        let (of_task, terms) = (stop.clone(), self.terms.clone());
        let task = tokio::spawn(async move {
            lead(&store.clone(), LEASE, &terms, &of_task, |held| {
                let (relay, store, ambient) = (relay.clone(), store.clone(), ambient.clone());
                async move {
                    let spec = Spec::default();
                    store::declare(&*store, &ambient, SINK, held.fence(), &spec).await.unwrap();
                    relay.lock().await.run(&held).await;
                }
            })
            .await;
        });
        Pump { stop, task }
    }

    /// Commits events of these objects.
    pub async fn happen(&self, objects: &[&str]) {
        for object in objects {
            self.happen_with(object, Json::encode(object)).await;
        }
    }

    pub async fn happen_with(&self, object: &str, data: Json) {
        let event = EventDraft {
            kind: "mainstay.widget.ready".into(),
            subject: Key::new("widget", object),
            org: "acme".into(),
            data: Some(data),
        };
        let change = Change { event: Some(event), ..Change::default() };
        commit(&*self.store, change, self.ambient.now()).await.unwrap();
    }

    /// Purges events as if nobody read them for too long. Returns the oldest that is left.
    pub async fn purge(&self) -> i64 {
        let later = self.ambient.now().plus(Duration::from_secs(3600));
        let purge =
            Purge { unread_events_before: later, ..testkit::stores::old(later, Timestamp(0)) };
        while self.store.purge(&purge, 1000).await.unwrap() > 0 {}
        self.store.first_event().await.unwrap().unwrap()
    }

    /// The events of widgets that exist, as the sink should get them.
    pub async fn widgets(&self) -> Vec<i64> {
        let events = self.store.events(0, &Default::default(), 10_000).await.unwrap();
        let widgets = events.iter().filter(|event| event.subject.kind() == "widget");
        widgets.map(|event| event.seq).collect()
    }

    /// What was delivered, without what the sink's own object brings.
    pub fn delivered(&self) -> Vec<i64> {
        let delivered = self.other.delivered.lock();
        let widgets = delivered.iter().filter(|message| message.key.starts_with("widget/"));
        widgets.map(|message| message.seq).collect()
    }

    /// Waits until an event of this object is delivered.
    pub async fn until_delivered(&self, object: &str) {
        let key = format!("widget/{object}");
        self.until(object, async || {
            self.other.delivered.lock().iter().any(|message| message.key == key)
        })
        .await;
    }

    pub async fn cursor(&self) -> Option<(Position, Cursor)> {
        store::cursor(&*self.store, SINK).await.unwrap()
    }

    pub async fn sink(&self) -> Sink {
        let object = self.store.object(&store::key(SINK)).await.unwrap().unwrap();
        Sink::from_object(&object).unwrap()
    }

    /// Waits until it holds.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !holds().await {
            assert!(begun.elapsed() < DEADLINE, "{what}: {:?}", self.other.seqs());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn until_all_are_delivered(&self) {
        let all = self.widgets().await;
        self.until("all are delivered", async || {
            let delivered = self.delivered();
            all.iter().all(|seq| delivered.contains(seq))
        })
        .await;
    }
}
