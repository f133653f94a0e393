//! The local data plane: instances as supervised processes of this machine. They outlive the server,
//! which adopts them at its next start; they are restarted when they die; and a removed instance
//! leaves nothing behind.

mod actor;
pub mod agent;
mod output;
mod ports;
mod readiness;
mod record;
mod start;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kernel::{Ambient, Error, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use actor::{Operation, ProcessActor, Request};
use output::Output;
use ports::Ports;
use record::Record;

pub(super) use ports::free as free_port;
pub use readiness::Readiness;
pub(super) use readiness::write_facts;

/// How an instance is run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Unique; names its directory, so it consists of `a-z`, `0-9` and `-`.
    pub id: String,
    /// `${port}`, `${port2}`, `${port3}`, `${dir}`, `${id}` and `${mainstay}` (our own executable)
    /// are replaced, here and in `env`.
    pub command: Vec<String>,
    /// Added to what it inherits: `PATH`, `HOME`, the locale and the location of Java.
    pub env: BTreeMap<String, String>,
    pub ready: Readiness,
    /// Seconds between SIGTERM and SIGKILL.
    pub stop_s: u64,
    /// Seconds until it must be ready; then it has failed and is retried.
    pub start_s: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum State {
    Starting,
    Ready {
        port: u16,
        /// What its process reports about itself.
        facts: BTreeMap<String, String>,
    },
    /// It is retried with growing delays, and stays failed until it is ready.
    Failed {
        reason: String,
        restarts: u32,
    },
    /// Nothing of it runs: unknown, suspended or removed.
    Gone,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Supervisor {
    inner: Arc<SupervisorInner>,
}

/// State that all actors share.
struct SupervisorInner {
    root: PathBuf,
    ambient: Ambient,
    tasks: TaskTracker,
    stop: CancellationToken,
    executable: PathBuf,
    instances: Mutex<BTreeMap<String, Instance>>,
    ports: Ports,
    changes: broadcast::Sender<String>,
    /// Holds the lock: two supervisors would start everything twice.
    _lock: File,
}

struct Instance {
    requests: mpsc::Sender<Request>,
    state: State,
    pid: Option<u32>,
}

/// A listener that lags further reads all states instead.
const CHANGES_MAX: usize = 1024;

/// Requests queue up only while a process stops; few callers have a second one by then.
const REQUESTS_MAX: usize = 8;

/// A server that is stopping releases the directory within this time.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Opens the directory and adopts the processes that still run. When `stop` is cancelled,
    /// supervision ends and the processes go on.
    pub async fn open(
        dir: PathBuf,
        ambient: Ambient,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Result<Supervisor> {
        let problem = |error| Error::unavailable("the local data plane", error);
        let root = std::path::absolute(dir).map_err(problem)?;
        // Output and data of instances are not for other users of this machine.
        DirBuilder::new().recursive(true).mode(0o700).create(&root).map_err(problem)?;
        let lock = lock(&root).await?;
        let records = Record::read_all(&root).map_err(problem)?;
        let inner = Arc::new(SupervisorInner {
            root,
            ambient,
            tasks,
            stop,
            executable: std::env::current_exe().map_err(problem)?,
            instances: Mutex::default(),
            ports: Ports::default(),
            changes: broadcast::Sender::new(CHANGES_MAX),
            _lock: lock,
        });
        for record in &records {
            inner.ports.reserve(&record.ports);
        }
        for record in records {
            inner.spawn_actor(&mut inner.instances.lock(), record);
        }
        Ok(Supervisor { inner })
    }

    /// Runs an instance. The same spec again changes nothing; another command or environment restarts
    /// it.
    pub async fn run(&self, spec: ProcessSpec) -> Result<()> {
        check(&spec)?;
        let id = spec.id.clone();
        self.request(&id, Operation::Run(spec)).await
    }

    /// Stops it and removes its directory. Idempotent.
    pub async fn remove(&self, id: &str) -> Result<()> {
        self.request(id, Operation::Remove).await
    }

    /// Stops the process and keeps its data. [`Supervisor::run`] starts it again.
    pub async fn suspend(&self, id: &str) -> Result<()> {
        self.request(id, Operation::Suspend).await
    }

    pub fn state(&self, id: &str) -> State {
        let instances = self.inner.instances.lock();
        instances.get(id).map_or(State::Gone, |instance| instance.state.clone())
    }

    /// The main process of an instance.
    pub fn pid(&self, id: &str) -> Option<u32> {
        self.inner.instances.lock().get(id)?.pid
    }

    /// All instances with a directory here, including suspended ones.
    pub fn ids(&self) -> Vec<String> {
        self.inner.instances.lock().keys().cloned().collect()
    }

    /// The ids of instances whose state changes. A listener that lags reads all states.
    pub fn changes(&self) -> broadcast::Receiver<String> {
        self.inner.changes.subscribe()
    }

    /// The last lines of its process's output.
    pub fn tail(&self, id: &str, lines: usize) -> Vec<String> {
        if self.inner.instances.lock().contains_key(id) {
            Output::in_dir(&self.inner.dir(id)).tail(lines, 0)
        } else {
            Vec::new()
        }
    }

    /// Waits until the actor has handled a request. An unknown instance is created if it is to run.
    async fn request(&self, id: &str, operation: Operation) -> Result<()> {
        // An actor that has just removed its instance does not reply; the next one does.
        for _ in 0..3 {
            if self.inner.stop.is_cancelled() {
                break;
            }
            let requests = {
                let mut instances = self.inner.instances.lock();
                match instances.get(id) {
                    Some(instance) => instance.requests.clone(),
                    None if matches!(operation, Operation::Run(_)) => {
                        self.inner.spawn_actor(&mut instances, Record::new(id))
                    }
                    None => return Ok(()),
                }
            };
            let (done, result) = oneshot::channel();
            if requests.send(Request { operation: operation.clone(), done }).await.is_ok()
                && let Ok(result) = result.await
            {
                return result;
            }
        }
        Err(Error::unavailable(format!("the supervisor of instance {id}"), "it has ended"))
    }
}

impl SupervisorInner {
    fn dir(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    /// Starts the actor of an instance.
    fn spawn_actor(
        self: &Arc<SupervisorInner>,
        instances: &mut BTreeMap<String, Instance>,
        record: Record,
    ) -> mpsc::Sender<Request> {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let id = record.spec.id.clone();
        let actor = ProcessActor::new(self.clone(), record, receiver);
        let (state, pid) = (actor.initial_state(), actor.pid());
        instances.insert(id, Instance { requests: requests.clone(), state, pid });
        self.tasks.spawn(actor.supervise());
        requests
    }

    fn publish(&self, id: &str, state: State, pid: Option<u32>) {
        if let Some(instance) = self.instances.lock().get_mut(id) {
            instance.pid = pid;
            if instance.state == state {
                return;
            }
            instance.state = state;
        }
        // There may be no listener.
        let _ = self.changes.send(id.to_owned());
    }

    fn publish_pid(&self, id: &str, pid: Option<u32>) {
        if let Some(instance) = self.instances.lock().get_mut(id) {
            instance.pid = pid;
        }
    }

    fn forget(&self, id: &str) {
        self.instances.lock().remove(id);
        let _ = self.changes.send(id.to_owned());
    }

    async fn write(&self, record: Record) -> Result<()> {
        let id = record.spec.id.clone();
        self.on_disk(&id, move |root| record.write(root)).await
    }

    /// Deletes its directory, then its record: a half removed instance stays known.
    async fn delete(&self, id: &str) -> Result<()> {
        let name = id.to_owned();
        let delete = move |root: &Path| {
            match std::fs::remove_dir_all(root.join(&name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            Record::delete(root, &name)
        };
        self.on_disk(id, delete).await
    }

    async fn on_disk(
        &self,
        id: &str,
        work: impl FnOnce(&Path) -> std::io::Result<()> + Send + 'static,
    ) -> Result<()> {
        let root = self.root.clone();
        let done = kernel::files::blocking(move || work(&root)).await;
        done.map_err(|error| Error::unavailable(format!("the files of instance {id}"), error))
    }
}

async fn lock(root: &Path) -> Result<File> {
    let path = root.join(".lock");
    let problem = |error| Error::unavailable(path.display().to_string(), error);
    let file = File::create(&path).map_err(problem)?;
    let deadline = tokio::time::Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(problem(error)),
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(TryLockError::WouldBlock) => {
                let what = root.display().to_string();
                return Err(Error::unavailable(what, "another server uses it"));
            }
        }
    }
}

fn check(spec: &ProcessSpec) -> Result<()> {
    let id = &spec.id;
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.is_empty() || id.len() > 200 || !id.bytes().all(allowed) {
        let message = format!("`{id}` must be 1 to 200 of a-z, 0-9 and -");
        return Err(Error::invalid("id", message));
    }
    if spec.command.first().is_none_or(String::is_empty) {
        return Err(Error::invalid("command", "must name a program"));
    }
    if spec.start_s == 0 {
        return Err(Error::invalid("start_s", "must be at least 1"));
    }
    Ok(())
}
