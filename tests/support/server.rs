//! A server of a test's own: the binary in a process, on a port that it keeps over restarts.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rand::Rng;

use crate::{Client, DEADLINE, LOOK_EVERY, wire};

/// Settings whose name ends so hold secrets.
const SECRETS: [&str; 3] = ["password", "secret", "token"];
const SECRET_MIN: usize = 16;

/// How to start a server: as often as one likes, always at the same address.
#[derive(Clone)]
pub struct Plan {
    binary: PathBuf,
    pub dir: PathBuf,
    /// Where widgets are built; replicas share it.
    pub workshop: PathBuf,
    pub port: u16,
    args: Vec<String>,
    /// Of the server's environment.
    variables: Vec<(String, String)>,
    /// Passwords and the like of the configuration: nothing that the server writes may have one.
    secrets: Vec<String>,
}

/// Below the ports that the system gives to outgoing connections, so that no client of a server
/// that is down for a moment can get its port.
fn free_port() -> u16 {
    let ports = std::iter::repeat_with(|| rand::rng().random_range(20_000..32_000));
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.take(1000).find(free).expect("a port is free")
}

impl Plan {
    /// Everything of the server's is in `dir`: `data`, `workshop`, `log`.
    pub fn new(binary: &str, dir: &Path) -> Plan {
        let (binary, workshop, dir) = (binary.into(), dir.join("workshop"), dir.to_owned());
        let (args, variables, secrets) = Default::default();
        Plan { binary, dir, workshop, port: free_port(), args, variables, secrets }
    }

    pub fn set(mut self, key: &str, value: impl std::fmt::Display) -> Plan {
        let (name, value) = (key.rsplit('.').next().unwrap_or(key), value.to_string());
        self.args.extend(["--set".into(), format!("{key}={value}")]);
        // A shorter one may occur by itself.
        if SECRETS.iter().any(|secret| name.ends_with(secret)) && value.len() >= SECRET_MIN {
            self.secrets.push(value);
        }
        self
    }

    /// Sets a variable of the server's environment.
    pub fn variable(mut self, name: &str, value: &str) -> Plan {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub fn database(mut self, url: &str) -> Plan {
        self.args.extend(["--database".into(), url.into()]);
        self
    }

    /// The same server at another address.
    pub fn elsewhere(&self) -> Plan {
        Plan { port: free_port(), ..self.clone() }
    }

    /// A second server that shares the first one's database, workshop and identity.
    pub fn replica(&self, name: &str) -> Plan {
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        let twin = Plan { dir, ..self.elsewhere() };
        let key = |name: &str| self.data().join(name).display().to_string();
        twin.set("http.public_url", self.url())
            .set("identity.signing_key_file", key("issuer-key.pem"))
            .set("fleet.key_file", key("fleet-key"))
            .set("key_file", key("installation-key"))
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// What the server said, over all its starts.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The binary with an environment of its own: nothing of this machine's decides a test.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("USER", "tess").env("XDG_CONFIG_HOME", self.dir.join("config"));
        command.env("MAINSTAY_DATA_DIR", self.data()).env("WIDGET_WORKSHOP", &self.workshop);
        command
    }

    /// Runs a verb of the client to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).stdin(Stdio::null()))
    }

    /// Runs a verb as someone who cannot read the server's data.
    pub fn run_elsewhere(&self, args: &[&str]) -> Ran {
        let mut command = self.command(args);
        command.env("MAINSTAY_DATA_DIR", self.dir.join("elsewhere"));
        Ran::of(command.stdin(Stdio::null()))
    }

    fn server_command(&self) -> Command {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = self.command(&["server", "--listen", &listen]);
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        command.args(&self.args).envs(variables).stdin(Stdio::null());
        command
    }

    /// Runs a server that should not come up, to its end.
    pub fn refused(&self) -> Ran {
        let mut command = self.server_command();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = self.server(command);
        let code = server.exits().code().unwrap_or(-1);
        let read = |pipe: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            pipe.expect("it is piped").read_to_string(&mut text).expect("it prints text");
            text
        };
        let stdout = read(server.child.stdout.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        let stderr = read(server.child.stderr.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        Ran { code, stdout, stderr }
    }

    /// Starts it and does not wait for anything.
    pub fn spawn(&self) -> Server {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log"));
        let log = log.expect("the log can be written");
        let mut command = self.server_command();
        command.stdout(log.try_clone().expect("a file")).stderr(log);
        self.server(command)
    }

    fn server(&self, mut command: Command) -> Server {
        let written = [self.dir.join("log"), self.data()];
        let secrets = self.secrets.clone();
        Server { child: command.spawn().expect("the binary runs"), written, secrets }
    }

    /// Starts it and waits until it is ready.
    pub async fn start(&self) -> Server {
        let mut server = self.spawn();
        let begun = Instant::now();
        let ask = wire::request("GET", "/api/v1/self/readiness", "", b"");
        while wire::exchange(self.port, &ask, false).await.status != Some(200) {
            let ended = server.child.try_wait().expect("it is our child");
            let late = begun.elapsed() > DEADLINE;
            assert!(ended.is_none() && !late, "no server ({ended:?}):\n{}", self.log());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        server
    }

    /// A token for an admin of the organisation `local`.
    pub fn token(&self) -> String {
        let ran = self.run(&["token", "--subject", "tess", "--role", "admin-full"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    }

    /// As an admin.
    pub fn client(&self) -> Client {
        Client::new(&self.url(), &self.token())
    }
}

/// What a command that has ended left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    fn of(command: &mut Command) -> Ran {
        let output = command.output().expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
        let code = output.status.code().unwrap_or(-1);
        Ran { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A running server; killed at the end even if the test fails. Then what it has written is searched for
/// the secrets of its configuration: its log, and the store with events, audit entries and commands.
pub struct Server {
    child: Child,
    written: [PathBuf; 2],
    secrets: Vec<String>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    fn search(&self, secret: &str) {
        let mut grep = Command::new("grep");
        grep.args(["-rlaFs", "-e", secret]).args(&self.written);
        let found = grep.output().expect("grep runs").stdout;
        let found = String::from_utf8_lossy(&found);
        assert!(found.is_empty(), "a secret of the configuration is in {found}");
    }

    pub fn signal(&self, signal: &str) {
        crate::server::signal(self.pid(), signal);
    }

    /// Waits until it has ended by itself.
    pub fn exits(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "the server does not end");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// SIGTERM; returns how it ended and how long that took.
    pub fn stop(mut self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        self.signal("TERM");
        (self.exits(), begun.elapsed())
    }
}

pub fn signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
    assert!(sent.expect("kill runs").success(), "{signal} was not sent to {pid}");
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            self.secrets.iter().for_each(|secret| self.search(secret));
        }
    }
}
