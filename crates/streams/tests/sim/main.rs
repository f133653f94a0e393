//! The operator on a simulated API server: events are late, reordered or missing, responses are
//! lost, and the operator crashes between any two actions. The cluster still converges.
//!
//! `SIM_SEEDS=1000 cargo test -p streams --test sim` runs more seeds; `SIM_SEED=17` runs one.
#![expect(clippy::unwrap_used, reason = "a test")]

mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use kernel::Ambient;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use server::{KINDS, Kind, NAMESPACE, Server, State, class, name};
use streams::decide::Action;
use streams::index::Index;
use streams::model::phase::Phase;
use streams::model::settings::Settings;
use streams::model::template::Template;
use streams::model::watch::{ApiError, Object, Resource, WatchEvent};
use streams::model::{CrdVersion, Key, NamespacedName};
use streams::work::Effects;

const STREAMS: [&str; 3] = ["s1", "s2", "s3"];

struct Run {
    random: StdRng,
    server: Arc<Server>,
    effects: Effects,
    /// How far each watch has read the log.
    event: BTreeMap<Kind, usize>,
    dirty: BTreeSet<Key>,
    /// The remaining actions of each stream's decision.
    doing: BTreeMap<Key, VecDeque<Action>>,
    story: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let server = Arc::new(Server { state: Mutex::new(State::default()), class: class() });
        let effects = Run::begin(&server);
        Run {
            random: StdRng::seed_from_u64(seed),
            server,
            effects,
            event: BTreeMap::new(),
            dirty: BTreeSet::new(),
            doing: BTreeMap::new(),
            story: Vec::new(),
        }
    }

    /// An operator that knows only classes and templates.
    fn begin(server: &Arc<Server>) -> Effects {
        let settings = Settings { backfills_max: Some(2), requests_kept: 2, ..Settings::default() };
        let mut index = Index::new(settings);
        let classes = vec![Object::Class(server.class.clone())];
        index.apply(&Resource::Classes(CrdVersion::V1), WatchEvent::Snapshot(classes));
        let templates = ["stream", "backfill", "batch"].map(|name| {
            let raw = json!({
                "metadata": { "name": name, "namespace": "t", "resourceVersion": "1" },
                "spec": { "spec": { "template": { "spec": { "containers": [{ "name": "c" }] } } } },
            });
            Object::Template(Template::of(&serde_json::from_value(raw).unwrap(), CrdVersion::V1))
        });
        index.apply(&Resource::Templates(CrdVersion::V1), WatchEvent::Snapshot(templates.into()));
        let at: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
        let ambient = Ambient::seeded(move || kernel::Timestamp(at.as_millisecond()), 1);
        Effects { api: server.clone(), index: Arc::new(Mutex::new(index)), ambient }
    }

    fn log(&mut self, what: String) {
        self.story.push(what);
    }

    /// Kills the operator and starts it again; it lists everything.
    fn crash(&mut self) {
        self.log("the operator dies".into());
        self.effects = Run::begin(&self.server);
        self.doing.clear();
        self.dirty.clear();
        for kind in KINDS {
            self.list(kind);
        }
    }

    fn list(&mut self, kind: Kind) {
        let all = self.server.all(kind);
        let end = self.server.state.lock().log.len();
        self.event.insert(kind, end);
        let watched = self.server.watched(kind);
        let affected = self.effects.index.lock().apply(&watched, all);
        self.dirty.extend(affected);
    }

    /// Delivers the next event of a watch.
    fn deliver(&mut self, kind: Kind) -> bool {
        let from = *self.event.entry(kind).or_default();
        let entry = {
            let state = self.server.state.lock();
            let next = state.log.iter().enumerate().skip(from).find(|(_, (of, ..))| *of == kind);
            next.map(|(at, (_, value, end))| (at, value.clone(), *end))
        };
        let Some((at, value, end)) = entry else { return false };
        self.event.insert(kind, at + 1);
        let event = self.server.event(kind, &value, end);
        let watched = self.server.watched(kind);
        let affected = self.effects.index.lock().apply(&watched, event);
        self.dirty.extend(affected);
        true
    }

    /// Executes one action of one stream.
    async fn act(&mut self) -> bool {
        let mut keys: Vec<Key> = self.doing.keys().cloned().collect();
        keys.extend(self.dirty.iter().filter(|key| !self.doing.contains_key(key)).cloned());
        let Some(key) = keys.choose(&mut self.random).cloned() else { return false };
        let Some(doing) = self.doing.get_mut(&key) else {
            self.dirty.remove(&key);
            let (decision, affected) = self.effects.decide(&key);
            self.dirty.extend(affected);
            if !decision.actions.is_empty() {
                self.doing.insert(key, decision.actions.into());
            }
            return true;
        };
        let Some(action) = doing.pop_front() else {
            self.doing.remove(&key);
            self.dirty.insert(key);
            return true;
        };
        let done = self.effects.execute(&key, &action).await;
        let brief = format!("{action:?}").chars().take(110).collect::<String>();
        let how = done.error.as_ref().map_or(String::new(), |error| format!(" — {error}"));
        self.log(format!("{}: {brief}{how}", key.object_name.name));
        self.dirty.extend(done.affected);
        if let Some(error) = done.error {
            // It is reconciled again, at once or after the next watch event.
            assert!(!matches!(error, ApiError::Invalid(_) | ApiError::Forbidden(_)), "{error}");
            self.doing.remove(&key);
            self.dirty.insert(key);
        }
        true
    }

    /// Lets something happen to a Job or CronJob.
    fn advance(&mut self, calm: bool) -> bool {
        let names = {
            let mut state = self.server.state.lock();
            if state.collect() | delete_cron_jobs(&mut state) {
                return true;
            }
            let mut names = state.names(Kind::Job);
            names.shuffle(&mut self.random);
            names
        };
        if calm {
            names.into_iter().any(|name| self.advance_job(&name, true))
        } else {
            names.first().is_some_and(|name| self.advance_job(name, false))
        }
    }

    fn advance_job(&mut self, name: &str, calm: bool) -> bool {
        let mut state = self.server.state.lock();
        let job = state.get(Kind::Job, name).unwrap().clone();
        let ended = job["status"]["conditions"].is_array();
        let deleting = job["metadata"]["deletionTimestamp"].is_string();
        let backfilling = job["metadata"]["labels"]["arcane/backfilling"] == "true";
        let roll = self.random.random_range(0..10);
        let what = match (deleting, ended) {
            // A program that is terminated exits with success, and that may be observed.
            (true, false) if roll < 3 && !calm => {
                state.finish(name, true);
                "is stopped and succeeds"
            }
            (true, _) => {
                state.end(Kind::Job, name);
                "has ended"
            }
            (false, true) if roll < 5 || calm => {
                state.end(Kind::Job, name);
                "is removed after its end"
            }
            (false, false) if backfilling => {
                state.finish(name, calm || roll < 9);
                "backfilled"
            }
            (false, false) if !calm && roll < 3 => {
                state.finish(name, roll < 2);
                "ran to its end"
            }
            _ => return false,
        };
        drop(state);
        self.log(format!("Job {name} {what}"));
        true
    }

    /// Lets a user do something.
    fn user(&mut self) {
        let name = *STREAMS.choose(&mut self.random).unwrap();
        let roll = self.random.random_range(0..14);
        let mut state = self.server.state.lock();
        let Some(stream) = state.get(Kind::Stream, name).cloned() else {
            let spec = spec(self.random.random_range(0..3), self.random.random_bool(0.2));
            let made = json!({ "metadata": { "name": name }, "spec": spec });
            state.create(Kind::Stream, made);
            drop(state);
            self.log(format!("{name} is made"));
            return;
        };
        let mut changed = stream.clone();
        let what = match roll {
            0..3 => {
                changed["spec"]["source"] = json!(self.random.random_range(0..1000));
                "is edited"
            }
            3..5 => {
                changed["spec"]["execution"]["suspended"] = json!(true);
                "is suspended"
            }
            5..8 => {
                changed["spec"]["execution"]["suspended"] = json!(false);
                "is resumed"
            }
            8 => {
                let id = format!("b{}", self.random.random_range(0..1_000_000));
                let request = json!({
                    "metadata": { "name": id },
                    "spec": { "streamClass": "class-a", "streamId": name },
                });
                state.create(Kind::BackfillRequest, request);
                "is to be backfilled"
            }
            9 => {
                if let Some(request) = state.names(Kind::BackfillRequest).choose(&mut self.random) {
                    let request = request.clone();
                    state.end(Kind::BackfillRequest, &request);
                }
                "is there while a request is deleted"
            }
            10 => {
                state.end(Kind::Job, name);
                "loses its Job"
            }
            11 => {
                state.end(Kind::Stream, name);
                "is deleted"
            }
            12 => {
                let wish = self.random.random_range(0..1000).to_string();
                changed["metadata"]["annotations"]["mainstay.io/restart"] = json!(wish);
                "is to be restarted"
            }
            _ => {
                changed["spec"] = spec(self.random.random_range(0..3), false);
                "gets another backend"
            }
        };
        if changed != stream {
            state.put(Kind::Stream, changed);
        }
        drop(state);
        self.log(format!("{name} {what}"));
    }

    async fn storm(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.random_range(0..100) {
                0..12 => self.user(),
                12..30 => drop(self.advance(false)),
                30..32 => self.crash(),
                32..35 => {
                    // A watch was interrupted and starts with a list.
                    let kind = *KINDS.choose(&mut self.random).unwrap();
                    self.list(kind);
                }
                35..38 => {
                    let carried_out = self.random.random_bool(0.5);
                    self.server.state.lock().lose = Some(carried_out);
                }
                38..65 => {
                    let kind = *KINDS.choose(&mut self.random).unwrap();
                    self.deliver(kind);
                }
                _ => drop(self.act().await),
            }
        }
    }

    /// Stops all disturbances and runs until nothing is left to do.
    async fn quiesce(&mut self) -> Result<(), String> {
        self.server.state.lock().lose = None;
        for _ in 0..5000 {
            let mut moved = false;
            for kind in KINDS {
                while self.deliver(kind) {
                    moved = true;
                }
            }
            moved |= !self.doing.is_empty() || !self.dirty.is_empty();
            self.act().await;
            if !moved && !self.advance(true) {
                return Ok(());
            }
        }
        Err("it does not come to rest".into())
    }

    fn check(&self) -> Result<(), String> {
        let state = self.server.state.lock();
        if let Some(wrong) = state.wrong.first() {
            return Err(wrong.clone());
        }
        let index = self.effects.index.lock();
        for stream in state.names(Kind::Stream) {
            let key = Key {
                class: "class-a".into(),
                object_name: NamespacedName::new(NAMESPACE, &stream),
            };
            let known = index.stream(&key).ok_or(format!("{stream} is not known"))?;
            let written = state.get(Kind::Stream, &stream).unwrap();
            let phase = Phase::of(written["status"]["phase"].as_str().unwrap_or_default());
            let suspended = written["spec"]["execution"]["suspended"] == true;
            let batch = written["spec"]["execution"]["streamingBackend"]["batch"].is_object();
            let job = state.get(Kind::Job, &stream);
            let cron_job = state.get(Kind::CronJob, &stream);
            let open = index.requests(&key).any(|request| !request.completed);
            let hash = |object: Option<&Value>| {
                let hash = &object?["metadata"]["annotations"]["configuration-hash"];
                hash.as_str().map(str::to_owned)
            };
            let expected = match (suspended, phase, batch) {
                (true, ..) => phase == Phase::Suspended && job.is_none() && cron_job.is_none(),
                (false, Phase::Failed, _) => job.is_none() && cron_job.is_none(),
                (false, _, true) => {
                    phase == Phase::Scheduled
                        && job.is_none()
                        && hash(cron_job).as_deref() == Some(&*known.hash)
                        && !open
                }
                (false, _, false) => {
                    phase == Phase::Running
                        && cron_job.is_none()
                        && hash(job).as_deref() == Some(&*known.hash)
                        && !open
                }
            };
            if !expected {
                return Err(format!(
                    "{stream} is {phase:?}, suspended {suspended}, batch {batch}, open {open}: {} and {}",
                    job.map_or("no Job".into(), |job| job["metadata"].to_string()),
                    cron_job
                        .map_or("no CronJob".into(), |cron_job| cron_job["metadata"].to_string()),
                ));
            }
        }
        Ok(())
    }
}

/// The runs of CronJobs are not simulated, only their deletion.
fn delete_cron_jobs(state: &mut State) -> bool {
    let ending: Vec<String> = state
        .objects
        .iter()
        .filter(|((kind, _), cron_job)| {
            *kind == Kind::CronJob && cron_job["metadata"]["deletionTimestamp"].is_string()
        })
        .map(|(_, cron_job)| name(cron_job))
        .collect();
    ending.iter().for_each(|name| state.end(Kind::CronJob, name));
    !ending.is_empty()
}

fn spec(kind: u32, suspended: bool) -> Value {
    let reference = |name: &str| json!({ "name": name, "namespace": "t" });
    let backend = match kind {
        0 => json!({ "batch": { "schedule": "0 * * * *", "jobTemplateRef": reference("batch") } }),
        _ => json!({ "changeCapture": {
            "jobTemplateRef": reference("stream"), "backfillJobTemplateRef": reference("backfill"),
        } }),
    };
    json!({ "source": 0, "execution": {
        "layoutVersion": "v2", "suspended": suspended, "streamingBackend": backend,
    } })
}

async fn run(seed: u64) -> Result<(), (String, Vec<String>)> {
    let mut run = Run::new(seed);
    for kind in KINDS {
        run.list(kind);
    }
    run.storm(400).await;
    let settled = run.quiesce().await;
    let right = settled.and_then(|()| run.check());
    right.map_err(|wrong| (wrong, run.story))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test]
async fn the_cluster_converges_whatever_is_lost_or_late() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(300),
    };
    for seed in seeds {
        if let Err((wrong, story)) = run(seed).await {
            panic!("seed {seed}: {wrong}\n{}", story.join("\n"));
        }
    }
}

#[tokio::test]
async fn streams_that_are_resumed_at_once_get_one_job_each() {
    let mut run = Run::new(1);
    for i in 0..300 {
        let made = json!({ "metadata": { "name": format!("r{i}") }, "spec": spec(1, true) });
        run.server.state.lock().create(Kind::Stream, made);
    }
    for kind in KINDS {
        run.list(kind);
    }
    run.quiesce().await.unwrap();
    assert_eq!(run.server.state.lock().jobs_made, 0);
    for i in 0..300 {
        let mut state = run.server.state.lock();
        let mut stream = state.get(Kind::Stream, &format!("r{i}")).unwrap().clone();
        stream["spec"]["execution"]["suspended"] = json!(false);
        state.put(Kind::Stream, stream);
    }
    run.quiesce().await.unwrap();
    run.check().unwrap();
    assert_eq!(run.server.state.lock().jobs_made, 300);
}
