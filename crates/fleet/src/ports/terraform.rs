//! Clusters that Terraform (or OpenTofu) creates: a working directory for each, with a copy of the
//! module and the state.
//!
//! A run is not interrupted if that can be avoided: a half created resource would be in no state. It
//! leads its own process group and writes to a file, so that it goes on when this process dies, and
//! the next one waits for it.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kernel::telemetry::Secret;
use kernel::{Error, Result};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use crate::ports::process::Identity;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `terraform` or `tofu`, or the path of either.
    pub program: PathBuf,
    /// The module that creates a cluster. It has the outputs `kubeconfig`, `dns_name` and
    /// `external_id`, and may declare the variables `cluster_id`, `cluster_name`,
    /// `cloud_provider`, `region` and `multi_az`. None: clusters are not created here.
    pub module_dir: Option<PathBuf>,
    /// Further variables of the module.
    pub variables: BTreeMap<String, Secret>,
    /// Further environment variables, such as a cloud's credentials.
    pub environment: BTreeMap<String, Secret>,
    /// A run that takes longer is stopped.
    pub timeout_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            program: "terraform".into(),
            module_dir: None,
            variables: BTreeMap::new(),
            environment: BTreeMap::new(),
            timeout_s: 7_200,
        }
    }
}

/// The parameters of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TerraformInput {
    pub id: String,
    pub name: String,
    pub cloud_provider: String,
    pub region: String,
    pub multi_az: bool,
}

/// The outputs of the module.
#[derive(Clone, Default, PartialEq)]
pub struct Outputs {
    /// Empty if the module has no such output.
    pub kubeconfig: String,
    pub dns_name: String,
    pub external_id: String,
}

pub struct Terraform {
    config: Config,
    dir: PathBuf,
    /// Outputs by cluster, until the next run.
    cached: Mutex<HashMap<String, Outputs>>,
}

/// Marks in the working directory that the last run completed.
const APPLIED: &str = "mainstay-applied";
/// Marks that everything was destroyed; all other files are gone.
const DESTROYED: &str = "mainstay-destroyed";
/// Records the process that runs, for the server that takes over.
const RUNNING: &str = "mainstay-running.json";
const LOG: &str = "mainstay-run.log";
/// How long an interrupted run may take to save its state.
const STOP_GRACE: Duration = Duration::from_secs(60);

impl Terraform {
    /// `dir` is created when it is needed.
    pub fn new(config: Config, dir: PathBuf) -> Terraform {
        Terraform { config, dir, cached: Mutex::default() }
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.config.timeout_s)
    }

    fn working_dir(&self, id: &str) -> PathBuf {
        self.dir.join(id)
    }

    /// Creates the cluster, or what is missing of it.
    pub async fn apply(&self, input: &TerraformInput) -> Result<Outputs> {
        let Some(module) = &self.config.module_dir else {
            let why = "fleet.terraform.module_dir must name the module that creates a cluster";
            return Err(Error::unavailable("Terraform", why));
        };
        let working_dir = self.working_dir(&input.id);
        self.wait_for_previous_run(&working_dir).await?;
        self.cached.lock().remove(&input.id);
        files("preparing", || {
            std::fs::create_dir_all(&working_dir)?;
            remove_if_exists(&working_dir.join(DESTROYED))?;
            remove_if_exists(&working_dir.join(APPLIED))?;
            copy(module, &working_dir)
        })?;
        self.run(&working_dir, input, &["init", "-input=false", "-no-color"]).await?;
        let apply = ["apply", "-auto-approve", "-input=false", "-json", "-lock-timeout=60s"];
        self.run(&working_dir, input, &apply).await?;
        files("writing", || std::fs::write(working_dir.join(APPLIED), ""))?;
        self.read_outputs(&input.id).await
    }

    /// The outputs of the last run; none if there was none, or it did not complete.
    pub async fn outputs(&self, id: &str) -> Result<Option<Outputs>> {
        if let Some(cached) = self.cached.lock().get(id) {
            return Ok(Some(cached.clone()));
        }
        if !self.working_dir(id).join(APPLIED).exists() {
            return Ok(None);
        }
        self.read_outputs(id).await.map(Some)
    }

    async fn read_outputs(&self, id: &str) -> Result<Outputs> {
        let working_dir = self.working_dir(id);
        let mut command = self.command(&working_dir, &["output", "-json"]);
        let output =
            command.kill_on_drop(true).output().await.map_err(|e| self.program_error(e))?;
        let read: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let Some(read) = read.filter(|_| output.status.success()) else {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::unavailable(format!("Terraform's outputs of {id}"), why));
        };
        let text = |name: &str| read[name]["value"].as_str().unwrap_or_default().to_owned();
        let outputs = Outputs {
            kubeconfig: text("kubeconfig"),
            dns_name: text("dns_name"),
            external_id: text("external_id"),
        };
        self.cached.lock().insert(id.to_owned(), outputs.clone());
        Ok(outputs)
    }

    /// Destroys everything, with the module that created it. `begun` is whether a run may have started:
    /// then the working directory must exist.
    pub async fn destroy(&self, input: &TerraformInput, begun: bool) -> Result<()> {
        let working_dir = self.working_dir(&input.id);
        if working_dir.join(DESTROYED).exists() || !begun && !working_dir.exists() {
            return Ok(());
        }
        if !working_dir.exists() {
            let what = format!(
                "the working directory of cluster {}, without which its resources cannot be destroyed,",
                input.id
            );
            return Err(Error::unavailable(
                what,
                format!("{} does not exist", working_dir.display()),
            ));
        }
        self.wait_for_previous_run(&working_dir).await?;
        self.cached.lock().remove(&input.id);
        files("preparing", || remove_if_exists(&working_dir.join(APPLIED)))?;
        self.run(&working_dir, input, &["init", "-input=false", "-no-color"]).await?;
        let destroy = ["destroy", "-auto-approve", "-input=false", "-json", "-lock-timeout=60s"];
        self.run(&working_dir, input, &destroy).await?;
        files("removing", || {
            std::fs::write(working_dir.join(DESTROYED), "")?;
            for entry in std::fs::read_dir(&working_dir)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    std::fs::remove_dir_all(entry.path())?;
                } else if entry.file_name() != DESTROYED {
                    std::fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        })
    }

    /// Waits for a run of an earlier server, within its timeout.
    async fn wait_for_previous_run(&self, working_dir: &Path) -> Result<()> {
        let record = working_dir.join(RUNNING);
        let running = std::fs::read(&record).ok();
        let running: Option<Identity> = running.and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(last) = running.filter(Identity::is_alive) {
            tracing::info!(pid = last.pid, working_dir = %working_dir.display(), "waiting for an earlier run of Terraform");
            self.wait_or_stop(&last).await?;
        }
        files("cleaning up", || {
            remove_if_exists(&record)?;
            // Its writer is gone: nobody holds the lock any more.
            remove_if_exists(&working_dir.join(".terraform.tfstate.lock.info"))
        })
    }

    /// Waits for a process; after the timeout of a run it is interrupted, and then killed.
    async fn wait_or_stop(&self, process: &Identity) -> Result<()> {
        let signals =
            [(self.timeout(), Signal::INT), (STOP_GRACE, Signal::KILL), (STOP_GRACE, Signal::KILL)];
        for (grace, signal) in signals {
            if tokio::time::timeout(grace, process.ended()).await.is_ok() {
                return Ok(());
            }
            tracing::warn!(pid = process.pid, ?signal, "a Terraform run exceeded its timeout");
            files("ending a run", || process.signal(signal))?;
        }
        Err(Error::unavailable("Terraform", "a run does not end after SIGKILL"))
    }

    async fn run(&self, working_dir: &Path, input: &TerraformInput, args: &[&str]) -> Result<()> {
        let log = working_dir.join(LOG);
        let mut options = std::fs::OpenOptions::new();
        let out = options.create(true).write(true).truncate(true).mode(0o600).open(&log);
        let out = files("writing", || out)?;
        let err = files("writing", || out.try_clone())?;
        let mut command = self.command(working_dir, args);
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let variables = [
            ("cluster_id", input.id.clone()),
            ("cluster_name", input.name.clone()),
            ("cloud_provider", input.cloud_provider.clone()),
            ("region", input.region.clone()),
            ("multi_az", input.multi_az.to_string()),
        ];
        // In the environment they are not visible to other users, and not an error if the module does
        // not declare them.
        let further = self
            .config
            .variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose().clone()));
        for (name, value) in variables.into_iter().chain(further) {
            command.env(format!("TF_VAR_{name}"), value);
        }
        let mut child = command.spawn().map_err(|error| self.program_error(error))?;
        // None if it has ended already.
        if let Some(identity) = child.id().and_then(Identity::of_pid) {
            let record = serde_json::to_vec(&identity).expect("two plain fields");
            files("writing", || {
                kernel::files::replace(&working_dir.join(RUNNING), &record, 0o600)
            })?;
            self.wait_or_stop(&identity).await?;
        }
        let status = child.wait().await;
        files("cleaning up", || remove_if_exists(&working_dir.join(RUNNING)))?;
        self.check_result(&log, args[0], files("waiting", || status)?.success())
    }

    fn check_result(&self, log: &Path, what: &str, success: bool) -> Result<()> {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let (progress, why) = read_log(&log);
        tracing::info!(
            run = what,
            success,
            progress = self.redacted(&progress),
            "a Terraform run ended"
        );
        if success {
            return Ok(());
        }
        let why = self.redacted(&why);
        Err(Error::unavailable(format!("Terraform ({what}: {why}); its cluster"), why))
    }

    /// Redacts the configured values: any of them may be a secret.
    fn redacted(&self, text: &str) -> String {
        let Config { variables, environment, .. } = &self.config;
        let values = variables.values().chain(environment.values()).map(Secret::expose);
        values
            .filter(|value| value.len() > 3)
            .fold(text.to_owned(), |text, value| text.replace(value, "[redacted]"))
    }

    fn command(&self, working_dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.config.program);
        command.args(args).current_dir(working_dir).env("TF_IN_AUTOMATION", "1");
        command.env("TF_INPUT", "0").env("CHECKPOINT_DISABLE", "1");
        command.envs(self.config.environment.iter().map(|(name, value)| (name, value.expose())));
        command
    }

    fn program_error(&self, error: std::io::Error) -> Error {
        let program = self.config.program.display();
        Error::unavailable(format!("the program {program} (fleet.terraform.program)"), error)
    }
}

fn files<T>(what: &str, work: impl FnOnce() -> std::io::Result<T>) -> Result<T> {
    work().map_err(|error| {
        Error::unavailable(format!("Terraform's working directory ({what})"), error)
    })
}

fn remove_if_exists(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies a module's files, without what a run by hand may have left.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if text == ".terraform" || text.starts_with("terraform.tfstate") || text.starts_with(".git")
        {
            continue;
        }
        let target = to.join(&name);
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Returns a summary of a run, and its errors.
fn read_log(log: &str) -> (String, String) {
    let lines: Vec<Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_type = |kind: &'static str| lines.iter().filter(move |line| line["type"] == kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
    let progress = of_type("change_summary").next_back().map(|line| text(&line["@message"]));
    let errors = of_type("diagnostic").filter(|line| line["@level"] == "error").map(|line| {
        let (what, more) =
            (text(&line["diagnostic"]["summary"]), text(&line["diagnostic"]["detail"]));
        if more.is_empty() { what } else { format!("{what}: {more}") }
    });
    let mut why = errors.collect::<Vec<_>>().join("; ");
    if why.is_empty() {
        // Output that is not JSON (`init`, a crash) ends with the reason.
        let last: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        why = last[last.len().saturating_sub(6)..].join(" ");
    }
    (progress.unwrap_or_default(), why.chars().take(1_024).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_read_from_the_log_of_a_run() {
        let log = concat!(
            r#"{"@level":"info","@message":"Plan: 1 to add","type":"change_summary"}"#,
            "\n",
            r#"{"@level":"error","type":"diagnostic","diagnostic":{"summary":"No","detail":"quota"}}"#,
            "\n",
        );
        assert_eq!(read_log(log), ("Plan: 1 to add".into(), "No: quota".into()));
        assert_eq!(read_log("\nError: no module\n").1, "Error: no module");
        assert_eq!(read_log(""), Default::default());
    }

    #[test]
    fn configured_values_are_redacted() {
        let variables = [("token".to_owned(), Secret::from("hunter2"))].into();
        let terraform = Terraform::new(Config { variables, ..Config::default() }, "/x".into());
        assert_eq!(terraform.redacted("bad hunter2!"), "bad [redacted]!");
    }
}
