//! Clients that create, change and delete widgets, repeat each request with the same key until
//! there is an answer, and write down what was acknowledged to them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::id_of;
use crate::{Answer, Client, DEADLINE, LOOK_EVERY};

/// A widget as its client knows it from acknowledgements alone.
#[derive(Debug, Clone)]
pub struct Known {
    pub id: String,
    pub name: String,
    pub generation: i64,
    pub size: u64,
    pub deleted: bool,
    /// Another widget depends on it, so it stays.
    needed: bool,
}

impl Known {
    /// From the answer to its creation.
    pub fn created(answer: &Value) -> Known {
        let name = answer["name"].as_str().expect("an object has a name").to_owned();
        let size = answer["spec"]["size"].as_u64().expect("a widget has a size");
        let id = id_of(answer);
        Known { id, name, generation: 1, size, deleted: false, needed: false }
    }
}

/// The responses that all clients received.
#[derive(Debug, Default)]
pub struct Ledger {
    pub widgets: Vec<Known>,
    pub acknowledged: u64,
    /// Acknowledged although its first try had seemed to fail: carried out once, answered twice.
    pub replays: u64,
    /// Tries that ended without an answer.
    pub unanswered: u64,
    /// Requests that were throttled, and the longest one.
    pub put_off: u64,
    pub put_off_longest: Duration,
    /// Answers that must not be.
    pub faults: Vec<String>,
}

impl Ledger {
    pub fn add(&mut self, other: Ledger) {
        self.widgets.extend(other.widgets);
        self.acknowledged += other.acknowledged;
        self.replays += other.replays;
        self.unanswered += other.unanswered;
        self.put_off += other.put_off;
        self.put_off_longest = self.put_off_longest.max(other.put_off_longest);
        self.faults.extend(other.faults);
    }
}

pub struct Load {
    clients: JoinSet<Ledger>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    acknowledged: AtomicU64,
    put_off: AtomicU64,
    /// The first answer that must not be.
    fault: OnceLock<String>,
}

impl Load {
    /// Each try goes to any of the servers.
    pub fn start(servers: &[Client], clients: usize) -> Load {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let state = Arc::new(State::default());
        let mut running = JoinSet::new();
        for _ in 0..clients {
            let one = One {
                name: format!("c{}", NEXT.fetch_add(1, Ordering::Relaxed)),
                servers: servers.to_vec(),
                random: StdRng::from_rng(&mut rand::rng()),
                state: state.clone(),
                ledger: Ledger::default(),
                acts: 0,
            };
            running.spawn(one.run());
        }
        Load { clients: running, state }
    }

    /// So far, by all clients.
    pub fn acknowledged(&self) -> u64 {
        assert_eq!(self.state.fault.get(), None, "a client got a wrong response");
        self.state.acknowledged.load(Ordering::Relaxed)
    }

    /// Requests that were throttled so far.
    pub fn put_off(&self) -> u64 {
        self.state.put_off.load(Ordering::Relaxed)
    }

    /// Every client brings what it is at to an end.
    pub async fn end(mut self) -> Ledger {
        self.state.stop.store(true, Ordering::Relaxed);
        let mut all = Ledger::default();
        while let Some(ledger) = self.clients.join_next().await {
            all.add(ledger.expect("no client panics"));
        }
        all
    }
}

struct One {
    name: String,
    servers: Vec<Client>,
    random: StdRng,
    state: Arc<State>,
    ledger: Ledger,
    acts: u64,
}

enum Act {
    Create { name: String, depends_on: Option<usize> },
    Resize(usize),
    Delete(usize),
}

impl One {
    async fn run(mut self) -> Ledger {
        while !self.state.stop.load(Ordering::Relaxed) && self.ledger.faults.is_empty() {
            self.acts += 1;
            let act = self.choose();
            self.carry_out(act).await;
        }
        self.ledger
    }

    fn choose(&mut self) -> Act {
        let dice = self.random.random_range(0..100);
        let count = self.ledger.widgets.len();
        let any = (count > 0).then(|| self.random.random_range(0..count));
        let any = any.filter(|i| !self.ledger.widgets[*i].deleted);
        match any {
            Some(i) if dice < 45 => Act::Resize(i),
            Some(i) if dice < 60 && !self.ledger.widgets[i].needed => Act::Delete(i),
            any => {
                let name = format!("{}-{}", self.name, self.acts);
                Act::Create { name, depends_on: any.filter(|_| dice < 75) }
            }
        }
    }

    async fn carry_out(&mut self, act: Act) {
        let other = self.random.random_range(1..1000_u64);
        // A widget never gets the size that it has: that would be no new generation.
        let size = match &act {
            Act::Resize(i) => (self.ledger.widgets[*i].size + other) % 1000,
            Act::Create { .. } | Act::Delete(_) => other,
        };
        let of = |i: usize| format!("/api/v1/widgets/{}", self.ledger.widgets[i].id);
        let (method, path, body) = match &act {
            Act::Create { name, depends_on } => {
                let on = depends_on.map(|i| format!("widget/{}", self.ledger.widgets[i].id));
                let on: Vec<String> = on.into_iter().collect();
                let body = json!({"name": name, "size": size, "depends_on": on});
                (Method::POST, "/api/v1/widgets".to_owned(), Some(body))
            }
            Act::Resize(i) => (Method::PATCH, of(*i), Some(json!({ "size": size }))),
            Act::Delete(i) => (Method::DELETE, of(*i), None),
        };
        let answer = self.answer(method, &path, body.as_ref()).await;
        self.write_down(act, size, &answer);
    }

    /// Repeats the request until it is answered for good.
    async fn answer(&mut self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let key = format!("{}-{}", self.name, self.acts);
        let begun = Instant::now();
        loop {
            let server = &self.servers[self.random.random_range(0..self.servers.len())];
            let tried = Instant::now();
            match server.send(method.clone(), path, Some(&key), body).await {
                // A dependency that changed meanwhile is read again with the next try.
                Ok(answer) if answer.later() || answer.body["error"]["code"] == "stale" => {
                    self.ledger.put_off += 1;
                    let longest = &mut self.ledger.put_off_longest;
                    *longest = tried.elapsed().max(*longest);
                    self.state.put_off.fetch_add(1, Ordering::Relaxed);
                }
                Ok(answer) => return answer,
                Err(_) => self.ledger.unanswered += 1,
            }
            assert!(begun.elapsed() < 2 * DEADLINE, "{key}: no answer to {path}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn write_down(&mut self, act: Act, size: u64, answer: &Answer) {
        let generation = answer.body["generation"].as_i64().unwrap_or(0);
        let expected = match &act {
            Act::Create { .. } => 1,
            Act::Resize(i) | Act::Delete(i) => self.ledger.widgets[*i].generation + 1,
        };
        if answer.status != 202 || generation != expected {
            let fault = format!("{} where {expected} was due: {}", answer.status, answer.body);
            self.state.fault.get_or_init(|| fault.clone());
            self.ledger.faults.push(fault);
            return;
        }
        self.ledger.acknowledged += 1;
        self.ledger.replays += u64::from(answer.replayed);
        self.state.acknowledged.fetch_add(1, Ordering::Relaxed);
        match act {
            Act::Create { depends_on, .. } => {
                if let Some(i) = depends_on {
                    self.ledger.widgets[i].needed = true;
                }
                self.ledger.widgets.push(Known::created(&answer.body));
            }
            Act::Resize(i) => {
                let widget = &mut self.ledger.widgets[i];
                (widget.generation, widget.size) = (generation, size);
            }
            Act::Delete(i) => {
                let widget = &mut self.ledger.widgets[i];
                (widget.generation, widget.deleted) = (generation, true);
            }
        }
    }
}
