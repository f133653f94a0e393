//! A PostgreSQL of a test's own, which it may kill and start again.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::wait_for;

pub struct Postgres {
    dir: tempfile::TempDir,
    bin: PathBuf,
    /// Whom it runs as: it refuses to be root.
    user: Option<u32>,
    port: u16,
    child: Option<Child>,
}

impl Postgres {
    /// `None`, and a line that says so, where none is installed and none is required.
    pub async fn start() -> Option<Postgres> {
        testkit::servers::address("postgres")?;
        let bin = binaries().expect("where PostgreSQL runs, its programs are");
        let dir = tempfile::tempdir().expect("a directory");
        let user = (number("id", &["-u"]) == Some(0)).then(|| number("id", &["-u", "postgres"]));
        let user = user.map(|user| user.expect("its package has made a user"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let mut postgres = Postgres { dir, bin, user, port, child: None };
        std::os::unix::fs::chown(postgres.dir.path(), user, None).expect("the directory is ours");
        let args = ["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "-D"];
        let made = postgres.program("initdb").args(args).arg(postgres.data()).status();
        assert!(made.expect("initdb runs").success(), "initdb failed");
        postgres.again().await;
        Some(postgres)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// SIGKILL: no farewell, no checkpoint.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it with the data that it has.
    pub async fn again(&mut self) {
        let port = self.port.to_string();
        wait_for("PostgreSQL", async || {
            let ended = match &mut self.child {
                Some(child) => child.try_wait().expect("it is our child").is_some(),
                None => true,
            };
            // Until the last of those it had before is gone, it refuses to start.
            if ended {
                let mut command = self.program("postgres");
                command.arg("-D").arg(self.data()).args(["-p", &port, "-k"]).arg(self.dir.path());
                command.args(["-c", "listen_addresses=127.0.0.1"]);
                self.child = Some(command.spawn().expect("postgres runs"));
            }
            let ready = self.program("pg_isready").args(["-h", "127.0.0.1", "-p", &port]).status();
            ready.is_ok_and(|status| status.success())
        })
        .await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The newest, where packages put it.
fn binaries() -> Option<PathBuf> {
    let roots = ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"];
    let entries = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten();
    let bins = entries.map(|entry| entry.path().join("bin"));
    bins.filter(|bin| bin.join("initdb").exists()).max()
}

fn number(program: &str, args: &[&str]) -> Option<u32> {
    let output = Command::new(program).args(args).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
