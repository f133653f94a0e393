//! Terraform: for each test a working directory, and a directory of things for the provider of
//! ours (`crates/servers/assets/terraform`), whose files a test may read, change and lose.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::Instance;

pub struct Terraform {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn terraform() -> Option<Terraform> {
    Instance::shared("terraform").map(|server| Terraform { server })
}

/// Begins every configuration that uses things.
pub const THINGS: &str = r#"
terraform {
  required_providers { things = { source = "mainstay.test/test/things" } }
}
provider "things" { directory = "things" }
"#;

impl Terraform {
    pub fn project(&self) -> Project {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("things")).expect("it is empty");
        Project {
            dir,
            program: self.server.get("").into(),
            cli_config: self.server.get("cli_config").into(),
        }
    }
}

/// A working directory; gone with the value.
pub struct Project {
    dir: tempfile::TempDir,
    program: PathBuf,
    cli_config: PathBuf,
}

/// How a run of it ended.
#[derive(Debug)]
pub struct Ran {
    /// As the program says: with `-detailed-exitcode` 2 means that there is something to do.
    pub code: Option<i32>,
    /// What it printed, a JSON text in each line; other lines are left out.
    pub lines: Vec<Value>,
    pub stderr: String,
}

impl Project {
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces the configuration.
    pub fn configure(&self, configuration: &str) {
        let path = self.dir().join("main.tf");
        std::fs::write(path, configuration).expect("it can be written");
    }

    /// The file of a thing.
    pub fn thing(&self, name: &str) -> PathBuf {
        self.dir().join("things").join(name)
    }

    /// How operations on a thing go from now on, a line for each order; the provider's source
    /// says which there are.
    pub fn order(&self, thing: &str, orders: &str) {
        let path = self.thing(&format!("{thing}.orders"));
        std::fs::write(path, orders).expect("it can be written");
    }

    /// The environment that the program needs: nothing of the machine's own, nothing from outside.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.dir()).env("HOME", self.dir());
        command.env("TF_CLI_CONFIG_FILE", &self.cli_config).env("CHECKPOINT_DISABLE", "1");
        command.env("TF_IN_AUTOMATION", "1").env("TF_INPUT", "0");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub async fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().await.expect("Terraform runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        Ran {
            code: output.status.code(),
            lines: printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A run that must succeed; answers what it printed.
    pub async fn expect(&self, args: &[&str]) -> Vec<Value> {
        let ran = self.run(args).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:#?}");
        ran.lines
    }

    /// A run in a process group of its own, with the providers that it starts.
    pub fn begin(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Running { child: command.spawn().expect("Terraform runs") }
    }
}

/// Killed when it is dropped.
pub struct Running {
    child: Child,
}

impl Running {
    /// SIGKILL to it and its providers: it cannot unlock its state.
    pub async fn kill(mut self) {
        self.end();
        self.child.wait().await.expect("it ends");
    }

    fn end(&self) {
        if let Some(group) = self.child.id() {
            let kill = format!("kill -s KILL -- -{group}");
            let _ = std::process::Command::new("sh").args(["-c", &kill]).status();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
