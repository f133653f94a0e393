//! Clusters that Terraform (or OpenTofu) creates.
//!
//! What must not be lost is in the store, under the fence of the work: the state, as each run writes
//! it; the outputs of the last run that completed; and which machine runs now. Each machine has a
//! working directory with a copy of the module. See decision 0018.

mod files;
mod log;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use kernel::leash::{Leash, Program};
use kernel::outbound::{Delivery, Outbound};
use kernel::secret::{SecretSource, SecretValue};
use kernel::telemetry::Secret;
use kernel::{Ambient, Error, Result};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ports::process::Identity;
use log::Log;
use state::StateBackend;

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
    pub variables: BTreeMap<String, SecretSource>,
    /// Further environment variables, such as a cloud's credentials.
    pub environment: BTreeMap<String, SecretSource>,
    /// A run that takes longer is stopped.
    pub timeout_s: u64,
    /// Runs at once on each replica.
    pub runs_max: usize,
    /// Whether to go on from the last stored state after a replica was lost during a run. What that
    /// run created last and did not record must then be removed by hand.
    pub take_over: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            program: "terraform".into(),
            module_dir: None,
            variables: BTreeMap::new(),
            environment: BTreeMap::new(),
            timeout_s: 7_200,
            runs_max: 4,
            take_over: false,
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
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    /// Empty if the module has no such output.
    pub kubeconfig: String,
    pub dns_name: String,
    pub external_id: String,
}

/// Keeps what the runs of one cluster must not lose. Writes are refused once the work is another's.
#[async_trait]
pub trait RunStore: Send + Sync {
    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Writes or removes all of them, or none.
    async fn write(&self, writes: &[(&str, Option<&[u8]>)]) -> Result<()>;
    /// How long the work still lasts, if it is not renewed.
    fn lease(&self) -> Duration;
}

pub struct Terraform {
    config: Config,
    /// The configured variables and environment, by the names that the program reads.
    secrets: Vec<(String, SecretValue)>,
    dir: PathBuf,
    ambient: Ambient,
    leash: Leash,
    /// The clusters that were worked on since this server started.
    attempted: Mutex<BTreeSet<String>>,
}

const STATE: &str = "state";
/// The outputs of the last run, if it completed.
const OUTPUTS: &str = "outputs";
/// The machine of a run that has not handed in its state.
pub const RUN: &str = "run";
/// Identifies this data directory.
const MACHINE: &str = "machine-id";
/// How long an interrupted run may take to save its state.
const STOP_GRACE: Duration = Duration::from_secs(60);

impl Terraform {
    /// `dir` is created when it is needed. `argv` runs [`kernel::leash::supervise`].
    pub fn new(
        config: Config,
        dir: PathBuf,
        outbound: &Outbound,
        argv: Vec<OsString>,
    ) -> Result<Terraform> {
        let leash = Leash::new("Terraform", argv, config.runs_max.max(1), STOP_GRACE);
        let mut secrets = Vec::new();
        for (section, prefix, all) in
            [("environment", "", &config.environment), ("variables", "TF_VAR_", &config.variables)]
        {
            for (name, source) in all {
                let key = format!("fleet.terraform.{section}.{name}");
                secrets.push((format!("{prefix}{name}"), outbound.secret(&key, source)?));
            }
        }
        let ambient = outbound.ambient().clone();
        Ok(Terraform { config, secrets, dir, ambient, leash, attempted: Mutex::default() })
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.config.timeout_s)
    }

    fn working_dir(&self, id: &str) -> PathBuf {
        self.dir.join(id)
    }

    /// The clusters that ever had a run on this machine.
    pub fn known(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.filter_map(|dir| dir.file_name().into_string().ok()).collect()
    }

    /// Whether a run that has not handed in its state is of an earlier server on this machine, and this
    /// server was not asked to go on with it.
    pub async fn was_interrupted(&self, id: &str, run: &[u8]) -> Result<bool> {
        let attempted = self.attempted.lock().contains(id);
        Ok(!attempted && self.machine().await?.as_bytes() == run)
    }

    /// Creates the cluster, or what is missing of it.
    pub async fn apply(&self, input: &TerraformInput, store: &dyn RunStore) -> Result<Outputs> {
        let Some(module) = self.config.module_dir.clone() else {
            let why = "fleet.terraform.module_dir must name the module that creates a cluster";
            return Err(Error::unavailable("Terraform", why));
        };
        self.hand_in(input, store).await?;
        let dir = self.working_dir(&input.id);
        on_disk("preparing", move || files::prepare(&module, &dir)).await?;
        self.begin(store).await?;
        let args = ["apply", "-auto-approve", "-input=false", "-json", "-lock-timeout=60s"];
        let outputs = async {
            self.init(input, store).await?;
            self.run(input, store, &args).await?;
            let printed = self.run(input, store, &["output", "-json", "-no-color"]).await?;
            read_outputs(&input.id, &printed)
        }
        .await;
        let text = outputs.as_ref().map(|read| serde_json::to_vec(read).expect("plain texts"));
        self.end(input, store, text.ok()).await?;
        outputs
    }

    /// The outputs of the last run; none if there was none, or it did not complete.
    pub async fn outputs(&self, id: &str, store: &dyn RunStore) -> Result<Option<Outputs>> {
        let Some(text) = store.read(OUTPUTS).await? else {
            let dir = self.working_dir(id);
            let outputs = on_disk("reading", move || files::earlier_outputs(&dir)).await?;
            return Ok(outputs.map(|outputs| from_values(&outputs)));
        };
        let damaged = |error| Error::internal("the outputs of a Terraform run", error);
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Destroys everything, with the module that created it. `begun` is whether a run may have
    /// started.
    pub async fn destroy(
        &self,
        input: &TerraformInput,
        begun: bool,
        store: &dyn RunStore,
    ) -> Result<()> {
        let dir = self.working_dir(&input.id);
        self.hand_in(input, store).await?;
        let place = dir.clone();
        let known = on_disk("reading", move || Ok(place.exists())).await?;
        if !begun && !known && store.read(STATE).await?.is_none() {
            return Ok(());
        }
        let module = self.config.module_dir.clone();
        let place = dir.clone();
        on_disk("preparing", move || match module {
            // The copy that created it, if this machine has it: the module may have changed since.
            _ if files::uses_backend(&place) => Ok(()),
            Some(module) => files::prepare(&module, &place).map(drop),
            None if place.exists() => Ok(()),
            None => Err(std::io::Error::other("fleet.terraform.module_dir must name the module")),
        })
        .await?;
        self.begin(store).await?;
        let args = ["destroy", "-auto-approve", "-input=false", "-json", "-lock-timeout=60s"];
        let destroyed = async {
            self.init(input, store).await?;
            self.run(input, store, &args).await.map(drop)
        }
        .await;
        self.end(input, store, None).await?;
        destroyed?;
        store.write(&[(STATE, None)]).await?;
        on_disk("removing", move || files::remove_all(&dir)).await
    }

    /// Stores what an earlier run on this machine could not store. Refused if a run on another
    /// machine has not handed in its state: what it created may be in no state that we have.
    async fn hand_in(&self, input: &TerraformInput, store: &dyn RunStore) -> Result<()> {
        self.attempted.lock().insert(input.id.clone());
        let dir = self.working_dir(&input.id);
        let place = dir.clone();
        if let Some(last) = on_disk("reading", move || Ok(files::running(&place))).await? {
            tracing::info!(
                pid = last.pid,
                cluster = input.id,
                "waiting for an earlier run of Terraform"
            );
            self.wait_or_stop(&last).await?;
        }
        let stored = store.read(STATE).await?;
        let place = dir.clone();
        let unstored =
            on_disk("reading", move || files::unstored_state(&place, stored.as_deref())).await?;
        if let Some(state) = &unstored {
            store.write(&[(STATE, Some(state))]).await?;
            tracing::info!(cluster = input.id, "stored the state of an earlier run of Terraform");
        }
        on_disk("cleaning up", move || files::remove_stored(&dir)).await?;
        let Some(run) = store.read(RUN).await? else { return Ok(()) };
        let run = String::from_utf8_lossy(&run).into_owned();
        if run == self.machine().await? || self.config.take_over {
            return Ok(());
        }
        let why = format!(
            "a run on another machine ({run}) did not hand in its state. Start a server with that \
             machine's data directory (its machine-id is {run}). If it is lost, set \
             fleet.terraform.take_over, and look for resources that the state does not have"
        );
        Err(Error::unavailable("Terraform", why).with_delivery(Delivery::Rejected))
    }

    /// Records that this machine runs.
    async fn begin(&self, store: &dyn RunStore) -> Result<()> {
        let machine = self.machine().await?;
        store.write(&[(RUN, Some(machine.as_bytes())), (OUTPUTS, None)]).await
    }

    /// Records that the run has handed in its state, and its outputs if it completed.
    async fn end(
        &self,
        input: &TerraformInput,
        store: &dyn RunStore,
        outputs: Option<Vec<u8>>,
    ) -> Result<()> {
        self.hand_in(input, store).await?;
        store.write(&[(RUN, None), (OUTPUTS, outputs.as_deref())]).await
    }

    /// The name of this machine, by its data directory.
    async fn machine(&self) -> Result<String> {
        let (dir, fresh) = (self.dir.clone(), self.ambient.id());
        on_disk("reading", move || {
            std::fs::create_dir_all(&dir)?;
            let file = dir.join(MACHINE);
            kernel::files::create(&file, fresh.as_bytes(), 0o600)?;
            std::fs::read_to_string(&file)
        })
        .await
    }

    /// Waits for a process; after the timeout of a run it is interrupted, and then killed.
    async fn wait_or_stop(&self, process: &Identity) -> Result<()> {
        let signals = [(2 * STOP_GRACE, Signal::TERM), (2 * STOP_GRACE, Signal::KILL)];
        for (grace, signal) in signals {
            if tokio::time::timeout(grace, process.ended()).await.is_ok() {
                return Ok(());
            }
            tracing::warn!(pid = process.pid, ?signal, "an earlier run of Terraform does not end");
            let process = process.clone();
            on_disk("ending a run", move || process.signal(signal)).await?;
        }
        Err(Error::unavailable("Terraform", "an earlier run does not end"))
    }

    async fn init(&self, input: &TerraformInput, store: &dyn RunStore) -> Result<()> {
        let args = ["init", "-input=false", "-no-color", "-reconfigure"];
        self.run(input, store, &args).await.map(drop)
    }

    /// Runs one command to its end. The state that it writes is stored while it runs.
    async fn run(
        &self,
        input: &TerraformInput,
        store: &dyn RunStore,
        args: &[&str],
    ) -> Result<Log> {
        let backend = StateBackend::open(&self.ambient).await?;
        let dir = self.working_dir(&input.id);
        let secrets = self.current_secrets()?;
        let mut env = environment(input, &secrets);
        env.extend(backend.environment().map(|(name, value)| (name.into(), value.into())));
        let program = Program {
            path: self.config.program.clone(),
            args: args.iter().map(OsString::from).collect(),
            dir: dir.clone(),
            env,
            timeout: self.timeout(),
        };
        let mut log = Log::default();
        let mut pid = None;
        let status = {
            let run = self.leash.run(
                &program,
                || store.lease(),
                |id| {
                    // Quick, and must be there before anything else can happen.
                    if let Err(error) = files::record_running(&dir, id) {
                        tracing::warn!(%error, "recording a run of Terraform failed");
                    }
                    pid = Some(id);
                },
                |line| log.push(line),
            );
            backend.serve(run, store).await?
        };
        let (progress, why) = log.summary();
        let (run, success) = (args[0], status.success());
        tracing::info!(
            run,
            success,
            pid,
            progress = redacted(&progress, &secrets),
            "a Terraform run ended"
        );
        if success {
            return Ok(log);
        }
        let why = match (redacted(&why, &secrets), status.code()) {
            (why, Some(code)) if code == i32::from(kernel::leash::ENDED) => {
                format!("it was interrupted at the end of its lease or timeout: {why}")
            }
            (why, _) => why,
        };
        Err(Error::unavailable(format!("Terraform ({run})"), why))
    }

    fn current_secrets(&self) -> Result<Vec<(&str, Secret)>> {
        let all = self.secrets.iter();
        all.map(|(name, value)| Ok((name.as_str(), value.current()?))).collect()
    }
}

fn environment(input: &TerraformInput, secrets: &[(&str, Secret)]) -> Vec<(OsString, OsString)> {
    let known = [
        ("TF_VAR_cluster_id", input.id.clone()),
        ("TF_VAR_cluster_name", input.name.clone()),
        ("TF_VAR_cloud_provider", input.cloud_provider.clone()),
        ("TF_VAR_region", input.region.clone()),
        ("TF_VAR_multi_az", input.multi_az.to_string()),
    ];
    let fixed = [("TF_IN_AUTOMATION", "1"), ("TF_INPUT", "0"), ("CHECKPOINT_DISABLE", "1")];
    let fixed = fixed.map(|(name, value)| (name, value.to_owned()));
    // In the environment they are not visible to other users, and not an error if the module does
    // not declare them.
    let secrets = secrets.iter().map(|(name, value)| (*name, value.expose().clone()));
    let all = fixed.into_iter().chain(known).chain(secrets);
    all.map(|(name, value)| (name.into(), value.into())).collect()
}

/// Redacts the configured values: any of them may be a secret.
fn redacted(text: &str, secrets: &[(&str, Secret)]) -> String {
    let values = secrets.iter().map(|(_, value)| value.expose());
    values
        .filter(|value| value.len() > 3)
        .fold(text.to_owned(), |text, value| text.replace(value, "[redacted]"))
}

fn read_outputs(id: &str, printed: &Log) -> Result<Outputs> {
    let unreadable = || Error::unavailable(format!("Terraform's outputs of {id}"), "no JSON");
    printed.json().map(|outputs| from_values(&outputs)).ok_or_else(unreadable)
}

fn from_values(outputs: &Value) -> Outputs {
    let text = |name: &str| outputs[name]["value"].as_str().unwrap_or_default().to_owned();
    Outputs {
        kubeconfig: text("kubeconfig"),
        dns_name: text("dns_name"),
        external_id: text("external_id"),
    }
}

async fn on_disk<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    kernel::files::blocking(work).await.map_err(|error| {
        Error::unavailable(format!("Terraform's working directory ({what})"), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_values_are_redacted() {
        let secrets = [("TF_VAR_token", Secret::from("hunter2"))];
        assert_eq!(redacted("bad hunter2!", &secrets), "bad [redacted]!");
    }
}
