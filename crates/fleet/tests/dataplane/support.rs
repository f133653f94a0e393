//! A supervisor in a directory of its own, and what tests wait for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet::dataplane::local::{State, Supervisor};
use kernel::Ambient;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Two cores are shared with other tests, and Java is slow to start.
const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Plane {
    pub supervisor: Supervisor,
    pub root: PathBuf,
    tasks: TaskTracker,
    stop: CancellationToken,
    _files: Option<Files>,
}

/// Kills the processes of a test that failed.
struct Files(tempfile::TempDir);

impl Drop for Files {
    fn drop(&mut self) {
        for path in std::fs::read_dir(self.0.path()).into_iter().flatten().flatten() {
            let record = std::fs::read(path.path()).unwrap_or_default();
            let record: Value = serde_json::from_slice(&record).unwrap_or_default();
            if let Some(pid) = record["attempt"]["process"]["pid"].as_u64() {
                let group = format!("-{pid}");
                let _ = std::process::Command::new("kill")
                    .args(["-KILL", "--", &group])
                    .stderr(std::process::Stdio::null())
                    .status();
            }
        }
    }
}

impl Plane {
    pub async fn open() -> Plane {
        let files = Files(tempfile::tempdir().unwrap());
        let mut plane = Plane::open_in(files.0.path().to_owned()).await;
        plane._files = Some(files);
        plane
    }

    pub async fn open_in(root: PathBuf) -> Plane {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let supervisor =
            Supervisor::open(root.clone(), Ambient::system(), tasks.clone(), stop.clone());
        Plane { supervisor: supervisor.await.unwrap(), root, tasks, stop, _files: None }
    }

    /// Stops the server, runs `meanwhile`, and starts the next one.
    pub async fn restart(self, meanwhile: impl AsyncFnOnce(&Path)) -> Plane {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        drop(self.supervisor);
        meanwhile(&self.root).await;
        let mut next = Plane::open_in(self.root).await;
        next._files = self._files;
        next
    }

    /// Removes everything; nothing may be left.
    pub async fn close(self) {
        for id in self.supervisor.ids() {
            self.supervisor.remove(&id).await.unwrap();
        }
        assert_eq!(files_in(&self.root), [".lock"]);
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub async fn until<T>(&self, id: &str, check: impl Fn(State) -> Option<T>) -> T {
        let mut changes = self.supervisor.changes();
        let waiting = async {
            loop {
                if let Some(found) = check(self.supervisor.state(id)) {
                    return found;
                }
                changes.recv().await.unwrap();
            }
        };
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(found) => found,
            Err(_) => panic!(
                "{id} stays {:?}; its output is {:?}",
                self.supervisor.state(id),
                self.supervisor.tail(id, 20)
            ),
        }
    }

    pub async fn until_ready(&self, id: &str) -> (u16, BTreeMap<String, String>) {
        self.until(id, |state| match state {
            State::Ready { port, facts } => Some((port, facts)),
            _ => None,
        })
        .await
    }

    /// Waits until it has failed, with these words in the reason, and after so many restarts.
    pub async fn until_failed(&self, id: &str, words: &[&str], after: u32) {
        self.until(id, |state| match state {
            State::Failed { reason, restarts } if restarts >= after => {
                for word in words {
                    assert!(reason.contains(word), "{word} is not in {reason}");
                }
                Some(())
            }
            _ => None,
        })
        .await;
    }

    pub fn pid(&self, id: &str) -> u32 {
        self.supervisor.pid(id).unwrap()
    }

    /// Kills it, and waits until another process of it is ready.
    pub async fn kill_and_wait(&self, id: &str) -> (u16, BTreeMap<String, String>) {
        let before = self.pid(id);
        kill("-KILL", before);
        let other = |_| self.supervisor.pid(id).filter(|pid| *pid != before);
        self.until(id, |state| match state {
            State::Ready { port, facts } => other(()).map(|_| (port, facts)),
            _ => None,
        })
        .await
    }

    pub fn record(&self, id: &str) -> Value {
        record(&self.root, id)
    }
}

pub fn record(root: &Path, id: &str) -> Value {
    serde_json::from_slice(&std::fs::read(root.join(format!("{id}.json"))).unwrap()).unwrap()
}

pub fn edit_record(root: &Path, id: &str, edit: impl FnOnce(&mut Value)) {
    let mut record = record(root, id);
    edit(&mut record);
    std::fs::write(root.join(format!("{id}.json")), record.to_string()).unwrap();
}

pub fn files_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn kill(signal: &str, pid: u32) {
    let status = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.unwrap().success(), "kill {signal} {pid}");
}

/// Whether it runs; a zombie does not.
pub fn is_alive(pid: u32) -> bool {
    let arguments = ["-o", "stat=", "-p", &pid.to_string()];
    let ps = std::process::Command::new("ps").args(arguments).output().unwrap();
    let state = String::from_utf8_lossy(&ps.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// Polls for a condition that nothing announces.
pub async fn eventually<T>(what: &str, check: impl Fn() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.split_once("\r\n\r\n").unwrap().1.to_owned()
}
