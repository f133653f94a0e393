//! One instance of a server: a directory below which everything of it is, on ports that stay the
//! same when it is started again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::install::end_of;
use crate::{Cache, Process, Server};

pub struct Place {
    pub server: &'static Server,
    pub cache: Cache,
    pub dir: PathBuf,
    /// Whether data must survive a loss of power. Tests do without, which is much faster.
    pub durable: bool,
    /// What a test wants of a server of its own; each kind says what it understands.
    pub options: BTreeMap<String, String>,
}

/// How tests reach a server: its address under the empty name, and further values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionInfo(BTreeMap<String, String>);

/// How long a server may take to answer for the first time on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(300);

impl Place {
    /// Starts it and waits until it answers. A port that was free a moment ago may be taken by
    /// now: a first start is tried twice.
    pub fn start(&self) -> Result<ConnectionInfo> {
        let name = self.server.name;
        if !(self.server.installed)(&self.cache) {
            bail!("{name} is not installed; `cargo xtask servers install {name}` does that");
        }
        let again = self.dir.join(CONNECTION_INFO).exists();
        let started = (self.server.start)(self).or_else(|error| {
            if again {
                return Err(error);
            }
            self.stop()?;
            self.empty()?;
            (self.server.start)(self)
        });
        started.with_context(|| format!("{name} does not start"))?;
        self.connection_info()
    }

    /// A path below the directory, which is made.
    pub fn sub(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("{} cannot be made", dir.display()))?;
        Ok(dir)
    }

    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// A free loopback port, the same at each start.
    pub fn port(&self, name: &str) -> Result<u16> {
        let path = self.dir.join("ports");
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = known.lines().filter_map(|line| line.split_once(' '));
        if let Some((_, port)) = lines.find(|(known, _)| *known == name) {
            return Ok(port.parse()?);
        }
        let port = free_port()?;
        append(&path, &format!("{name} {port}"))?;
        Ok(port)
    }

    /// Starts a process of it, the leader of a group. What it prints is in `log/NAME.log`.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Process> {
        let log = self.sub("log")?.join(name).with_extension("log");
        let log = File::options().create(true).append(true).open(log)?;
        let program = command.get_program().to_owned();
        // It waits for a word until it is on record, and ends if the word never comes: the parent
        // starts it may be killed at any moment.
        let mut waiting = Command::new("sh");
        waiting.args(["-c", "read -r go && exec \"$0\" \"$@\" </dev/null"]).arg(&program);
        waiting.args(command.get_args()).process_group(0);
        waiting.current_dir(command.get_current_dir().unwrap_or(&self.dir));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => waiting.env(name, value),
                None => waiting.env_remove(name),
            };
        }
        if let Some(user) = &self.user()? {
            waiting.uid(user.uid).gid(user.gid).env("HOME", &self.dir);
        }
        waiting.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let mut child = waiting.spawn().context("sh cannot run")?;
        let process = Process::of(child.id())?;
        append(&self.dir.join(PROCESSES), &process.to_string())?;
        let mut word = child.stdin.take().context("it has no stdin")?;
        word.write_all(b"go\n").with_context(|| format!("{} cannot run", program.display()))?;
        // An ended child that nobody has looked at keeps its id, and some ask for it.
        std::thread::spawn(move || child.wait());
        Ok(process)
    }

    /// Runs a program of it to the end, as the user that [`Place::spawn`] would; answers what it
    /// printed.
    pub fn run(&self, command: &mut Command) -> Result<String> {
        if let Some(user) = &self.user()? {
            command.uid(user.uid).gid(user.gid).env("HOME", &self.dir);
        }
        if command.get_current_dir().is_none() {
            command.current_dir(&self.dir);
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{program} cannot run"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let more = String::from_utf8_lossy(&output.stderr);
            bail!("{program} failed ({}):\n{said}{more}", output.status);
        }
        Ok(said)
    }

    /// Waits until a probe succeeds. One that fails is tried again, unless a process has ended.
    pub fn ready<T>(&self, what: &str, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        loop {
            let error = match probe() {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let ended = self.processes()?.iter().any(|process| !process.is_alive());
            if ended || begun.elapsed() > TIMEOUT {
                let why = if ended { "a process of it ended" } else { "it takes too long" };
                bail!("{why} before {what}: {error:#}\n{}", self.logs(30)?);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Tells the tests something: `MAINSTAY_TEST_<SERVER>`, or with a name `…_<NAME>`.
    pub fn tell(&self, name: &str, value: impl std::fmt::Display) -> Result<()> {
        let mut connection_info = self.connection_info()?;
        connection_info.0.insert(name.into(), value.to_string());
        let lines: Vec<String> =
            connection_info.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        // Whole or not at all: someone may read it at this moment.
        let new = self.dir.join("connection.new");
        std::fs::write(&new, lines.join("\n"))?;
        Ok(std::fs::rename(new, self.dir.join(CONNECTION_INFO))?)
    }

    pub fn connection_info(&self) -> Result<ConnectionInfo> {
        let text = std::fs::read_to_string(self.dir.join(CONNECTION_INFO)).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Ok(ConnectionInfo(pairs.map(|(name, value)| (name.into(), value.into())).collect()))
    }

    /// The processes of the last start, in the order of their start.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let text = std::fs::read_to_string(self.dir.join(PROCESSES)).unwrap_or_default();
        text.lines().map(str::parse).collect()
    }

    pub fn is_running(&self) -> bool {
        let processes = self.processes().unwrap_or_default();
        // A tool has none.
        let tool = self.server.stop_signals.is_empty() && self.dir.join(CONNECTION_INFO).exists();
        (tool || !processes.is_empty()) && processes.iter().all(Process::is_alive)
    }

    /// To every process, as it is sent: `KILL`, `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) -> Result<()> {
        self.processes()?.iter().try_for_each(|process| process.signal(signal))
    }

    /// Asks politely, then does not ask. The last that started is the first that ends.
    pub fn stop(&self) -> Result<()> {
        for process in self.processes()?.iter().rev() {
            process.stop(self.server.stop_signals)?;
        }
        self.forget()
    }

    /// SIGKILL to all of its processes at once.
    pub fn kill(&self) -> Result<()> {
        self.signal("KILL")?;
        for process in self.processes()? {
            process.stop(&[])?;
        }
        self.forget()
    }

    fn forget(&self) -> Result<()> {
        let path = self.dir.join(PROCESSES);
        if path.exists() { Ok(std::fs::remove_file(path)?) } else { Ok(()) }
    }

    fn empty(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
        }
        Ok(())
    }

    /// The end of each of its logs.
    pub fn logs(&self, lines: usize) -> Result<String> {
        let mut out = String::new();
        let Ok(entries) = std::fs::read_dir(self.dir.join("log")) else { return Ok(out) };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            out.push_str(&format!("== {}\n{}\n", path.display(), end_of(path, lines)));
        }
        Ok(out)
    }

    /// Whom it runs as: the owner of its directory, which a kind changes with [`Place::belong_to`].
    fn user(&self) -> Result<Option<User>> {
        use std::os::unix::fs::MetadataExt;
        let owner = std::fs::metadata(&self.dir)?;
        let ours = std::fs::metadata("/proc/self").map(|own| own.uid()).unwrap_or(owner.uid());
        Ok((owner.uid() != ours).then(|| User { uid: owner.uid(), gid: owner.gid() }))
    }

    /// Some refuse to run as root: root gives the place to the user that their package has made.
    pub fn belong_to(&self, user: &str) -> Result<()> {
        if !crate::install::is_root() {
            return Ok(());
        }
        let id = |flag: &str| {
            let output = Command::new("id").args([flag, user]).output()?;
            let number = String::from_utf8_lossy(&output.stdout).trim().parse::<u32>();
            number.with_context(|| format!("there is no user {user}"))
        };
        let (uid, gid) = (id("-u")?, id("-g")?);
        give(&self.dir, uid, gid)
    }
}

struct User {
    uid: u32,
    gid: u32,
}

fn give(path: &Path, uid: u32, gid: u32) -> Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid))?;
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path)? {
            give(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}

const CONNECTION_INFO: &str = "connection";
const PROCESSES: &str = "processes";

impl ConnectionInfo {
    /// `name` is empty for the address itself.
    pub fn get(&self, name: &str) -> Result<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.with_context(|| format!("the server does not tell {name:?}"))
    }

    /// From the environment, where [`ConnectionInfo::env`] put it.
    pub fn from_env(server: &str) -> Option<ConnectionInfo> {
        let prefix = variable(server, "");
        let vars = std::env::vars().filter_map(|(name, value)| {
            let name = name.strip_prefix(&prefix)?;
            let name = if name.is_empty() { Some(name) } else { name.strip_prefix('_') };
            Some((name?.to_lowercase(), value))
        });
        let connection_info = ConnectionInfo(vars.collect());
        connection_info.0.contains_key("").then_some(connection_info)
    }

    pub fn env(&self, server: &str) -> Vec<(String, String)> {
        self.0.iter().map(|(name, value)| (variable(server, name), value.clone())).collect()
    }
}

/// The variable that tells one thing about a server.
pub fn variable(server: &str, name: &str) -> String {
    let server = server.to_uppercase();
    if name.is_empty() {
        format!("MAINSTAY_TEST_{server}")
    } else {
        format!("MAINSTAY_TEST_{server}_{}", name.to_uppercase())
    }
}

fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// Below the range that the system takes for outgoing connections: a port from there may be taken
/// while its server is down for a moment.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let (low, span) = (12_000u16, 20_000u16);
    let seed = std::process::id().wrapping_mul(7919) % u32::from(span);
    for _ in 0..span {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = low + u16::try_from((seed + step) % u32::from(span))?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port from {low} on is free")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;

    const SLEEPER: Server = Server {
        name: "sleeper",
        version: "1",
        cost: "nothing",
        needs: &[],
        installed: |_| true,
        install: |_| Ok(()),
        start: |place| {
            let process =
                place.spawn("sleeper", Command::new("sh").args(["-c", "echo hi; sleep 600"]))?;
            place.ready("it says so", || {
                let said = std::fs::read_to_string(place.dir.join("log/sleeper.log"))?;
                if said.contains("hi") { Ok(()) } else { bail!("it says {said:?}") }
            })?;
            place.tell("", format!("127.0.0.1:{}", place.port("main")?))?;
            place.tell("leader", process.pid())
        },
        stop_signals: &["TERM"],
    };

    #[test]
    fn a_place_keeps_its_port_and_its_data_and_knows_its_processes() {
        let dir = tempfile::tempdir().unwrap();
        let run = Run::owned(&Cache::at(dir.path())).unwrap();
        let place = run.place(&SLEEPER, false, BTreeMap::new()).unwrap();
        let first = place.start().unwrap();
        assert!(place.is_running());
        std::fs::write(place.dir.join("data"), "kept").unwrap();
        place.kill().unwrap();
        assert!(!place.is_running() && place.processes().unwrap().is_empty());
        let second = place.start().unwrap();
        assert_eq!(first.get("").unwrap(), second.get("").unwrap());
        assert_ne!(first.get("leader").unwrap(), second.get("leader").unwrap());
        assert_eq!(std::fs::read_to_string(place.dir.join("data")).unwrap(), "kept");
        let leader = place.processes().unwrap().remove(0);
        run.leave(&place).unwrap();
        assert!(!leader.is_alive() && !place.dir.exists());
    }

    #[test]
    fn a_server_that_ends_at_once_is_reported_with_its_log() {
        const FAILING: Server = Server {
            start: |place| {
                place.spawn("failing", Command::new("sh").args(["-c", "echo no luck; exit 1"]))?;
                place.ready("it answers", || -> Result<()> { bail!("no answer") })
            },
            ..SLEEPER
        };
        let dir = tempfile::tempdir().unwrap();
        let run = Run::owned(&Cache::at(dir.path())).unwrap();
        let place = run.place(&FAILING, false, BTreeMap::new()).unwrap();
        let error = format!("{:#}", place.start().unwrap_err());
        assert!(error.contains("a process of it ended before it answers: no answer"), "{error}");
        assert!(error.contains("no luck"), "{error}");
        run.leave(&place).unwrap();
    }

    #[test]
    fn connection_info_comes_back_from_the_environment() {
        let connection_info =
            ConnectionInfo([("".into(), "a=b".into()), ("ca".into(), "/x".into())].into());
        let env = connection_info.env("kafka");
        assert_eq!(env[0], ("MAINSTAY_TEST_KAFKA".into(), "a=b".into()));
        assert_eq!(env[1], ("MAINSTAY_TEST_KAFKA_CA".into(), "/x".into()));
        assert_eq!(connection_info.get("ca").unwrap(), "/x");
        assert!(connection_info.get("nothing").is_err());
    }
}
