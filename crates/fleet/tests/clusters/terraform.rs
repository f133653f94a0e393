//! The real Terraform (or OpenTofu), with nothing to download.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fleet::model::cluster::Phase;
use fleet::ports::kubernetes::{KubeClient, ObjectRef};
use fleet::ports::terraform::{Config, Outputs, RunStore, Terraform, TerraformInput};
use kernel::outbound::Outbound;
use kernel::secret::SecretSource;
use kernel::{Ambient, Refusal, Result};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::kubernetes::unique;
use crate::stage::{Stage, clusters_file, eventually};

/// A module that logs a line each time that its resource is created, and one when it is destroyed.
fn module(dir: &Path, pause_s: u32) -> std::path::PathBuf {
    let module = dir.join("module");
    std::fs::create_dir_all(&module).unwrap();
    let text = format!(
        r#"
variable "cluster_id" {{}}
variable "region" {{}}
variable "log" {{}}
variable "kubeconfig" {{
  default   = ""
  sensitive = true
}}
resource "terraform_data" "cluster" {{
  input = {{ id = var.cluster_id, log = var.log }}
  provisioner "local-exec" {{
    command = "echo began >> ${{var.log}}; sleep {pause_s}; echo made >> ${{var.log}}"
  }}
  provisioner "local-exec" {{
    when    = destroy
    command = "echo removed >> ${{self.input.log}}"
  }}
}}
output "external_id" {{ value = "ext-${{terraform_data.cluster.output.id}}" }}
output "dns_name" {{ value = "apps.${{var.cluster_id}}.${{var.region}}.example" }}
output "kubeconfig" {{
  value     = var.kubeconfig
  sensitive = true
}}
"#
    );
    std::fs::write(module.join("main.tf"), text).unwrap();
    module
}

pub fn config(dir: &Path, pause_s: u32, kubeconfig: &str) -> Option<Config> {
    let real = testkit::terraform()?;
    let secret = |text: &str| SecretSource::from(text);
    let log = dir.join("log").display().to_string();
    Some(Config {
        program: real.server.get("").into(),
        module_dir: Some(module(dir, pause_s)),
        variables: [
            ("log".to_owned(), secret(&log)),
            ("kubeconfig".to_owned(), secret(kubeconfig)),
        ]
        .into(),
        environment: [
            ("TF_CLI_CONFIG_FILE".to_owned(), secret(real.server.get("cli_config"))),
            ("HOME".to_owned(), secret(&dir.display().to_string())),
        ]
        .into(),
        timeout_s: 120,
        ..Config::default()
    })
}

fn log(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// This binary as `mainstay leash`: runs one test, which takes what follows `--` for its arguments.
pub fn leash_argv() -> Vec<OsString> {
    let own = std::env::current_exe().unwrap().into();
    vec![own, "terraform::as_mainstay_leash".into(), "--exact".into(), "--nocapture".into()]
}

#[test]
fn as_mainstay_leash() {
    let args: Vec<OsString> = std::env::args_os().skip_while(|arg| arg != "--").skip(1).collect();
    if !args.is_empty() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::process::exit(runtime.block_on(kernel::leash::supervise(&args)).into());
    }
}

/// The blobs of a cluster, as all machines see them.
#[derive(Default)]
struct Shared {
    blobs: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Refuses all writes, as if the work were another's.
    broken: AtomicBool,
}

#[async_trait]
impl RunStore for Shared {
    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.blobs.lock().get(name).cloned())
    }

    async fn write(&self, writes: &[(&str, Option<&[u8]>)]) -> Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Refusal::FenceLost("cluster/c1".into()).into());
        }
        for (name, data) in writes {
            match data {
                Some(data) => drop(self.blobs.lock().insert((*name).into(), data.to_vec())),
                None => drop(self.blobs.lock().remove(*name)),
            }
        }
        Ok(())
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(60)
    }
}

fn input() -> TerraformInput {
    TerraformInput { id: "c1".into(), region: "r1".into(), ..TerraformInput::default() }
}

/// Terraform on a machine of its own.
fn machine(config: &Config, dir: &Path, name: &str) -> Arc<Terraform> {
    let outbound = Outbound::new(Default::default(), Ambient::system(), Arc::new(|_| ())).unwrap();
    Arc::new(Terraform::new(config.clone(), dir.join(name), &outbound, leash_argv()).unwrap())
}

/// Starts a run that is dropped when its handle is aborted.
fn start(terraform: &Arc<Terraform>, store: &Arc<Shared>) -> JoinHandle<Result<Outputs>> {
    let (terraform, store) = (terraform.clone(), store.clone());
    tokio::spawn(async move { terraform.apply(&input(), &*store).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_created_once_and_destroyed_once_whatever_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 0, "text") else { return };
    let store = Shared::default();
    let [first, second, third] = ["a", "b", "c"].map(|name| machine(&config, dir.path(), name));
    assert!(first.outputs("c1", &store).await.unwrap().is_none());
    let made = first.apply(&input(), &store).await.unwrap();
    assert_eq!((made.external_id.as_str(), made.kubeconfig.as_str()), ("ext-c1", "text"));
    assert_eq!(made.dns_name, "apps.c1.r1.example");
    second.apply(&input(), &store).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made"], "another machine has the state");
    assert!(third.outputs("c1", &store).await.unwrap().is_some_and(|found| found == made));
    third.destroy(&input(), true, &store).await.unwrap();
    third.destroy(&input(), true, &store).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made", "removed"]);
    assert!(third.outputs("c1", &store).await.unwrap().is_none());
    assert!(store.blobs.lock().is_empty(), "nothing stays");
    first.apply(&input(), &store).await.unwrap();
    assert_eq!(log(dir.path()).len(), 5, "it can be created again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_in_a_file_of_an_earlier_version_is_taken_into_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 0, "") else { return };
    let (here, store) = (machine(&config, dir.path(), "a"), Shared::default());
    let made = here.apply(&input(), &store).await.unwrap();
    // As an earlier version left it.
    let state = store.blobs.lock().remove("state").unwrap();
    store.blobs.lock().clear();
    let place = dir.path().join("a/c1");
    std::fs::write(place.join("terraform.tfstate"), state).unwrap();
    std::fs::write(place.join("mainstay-applied"), "").unwrap();
    std::fs::remove_file(place.join("mainstay_override.tf")).unwrap();
    assert!(here.outputs("c1", &store).await.unwrap().is_some_and(|found| found == made));
    here.apply(&input(), &store).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made"], "it was not created again");
    assert!(store.blobs.lock().contains_key("state"));
    assert!(!place.join("terraform.tfstate").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_given_up_is_interrupted_and_the_next_one_converges() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 600, "") else { return };
    let store = Arc::new(Shared::default());
    let here = machine(&config, dir.path(), "a");
    let run = start(&here, &store);
    eventually("it began", async || log(dir.path()) == ["began"]).await;
    run.abort();
    assert!(run.await.err().unwrap().is_cancelled());
    // The next server on this machine waits until that run has ended and saved its state.
    module(dir.path(), 0);
    machine(&config, dir.path(), "a").apply(&input(), &*store).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "began", "made"], "no second run at the same time");
    machine(&config, dir.path(), "b").destroy(&input(), true, &*store).await.unwrap();
    assert!(store.blobs.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_could_not_be_stored_is_handed_in_by_the_machine_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 2, "") else { return };
    let store = Arc::new(Shared::default());
    let (here, there) = (machine(&config, dir.path(), "a"), machine(&config, dir.path(), "b"));
    let run = start(&here, &store);
    eventually("it began", async || log(dir.path()) == ["began"]).await;
    store.broken.store(true, Ordering::SeqCst);
    assert!(run.await.unwrap().is_err());
    assert_eq!(log(dir.path()), ["began", "made"]);
    store.broken.store(false, Ordering::SeqCst);

    let Err(refused) = there.apply(&input(), &*store).await else { panic!("it would create two") };
    let refused = refused.to_string();
    assert!(refused.contains("fleet.terraform.take_over"), "{refused}");
    assert_eq!(log(dir.path()), ["began", "made"], "nothing was created twice");
    here.apply(&input(), &*store).await.unwrap();
    there.apply(&input(), &*store).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made"], "the state was handed in");
    there.destroy(&input(), true, &*store).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made", "removed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_loss_of_a_machine_an_operator_can_have_another_take_over() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 600, "") else { return };
    let store = Arc::new(Shared::default());
    let run = start(&machine(&config, dir.path(), "a"), &store);
    eventually("it began", async || log(dir.path()) == ["began"]).await;
    // The machine is lost with everything that it had and ran.
    let record = std::fs::read_to_string(dir.path().join("a/c1/mainstay-running.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let pid = &record["pid"];
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    run.abort();
    for group in children.split_whitespace() {
        let kill = format!("kill -s KILL -- -{group}");
        let _ = std::process::Command::new("sh").args(["-c", &kill]).status();
    }
    module(dir.path(), 0);
    assert!(machine(&config, dir.path(), "b").apply(&input(), &*store).await.is_err());
    let config = Config { take_over: true, ..config };
    let there = machine(&config, dir.path(), "b");
    there.apply(&input(), &*store).await.unwrap();
    assert_eq!(log(dir.path()).last().unwrap(), "made");
    there.destroy(&input(), true, &*store).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_does_not_contain_configured_values() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut config) = config(dir.path(), 0, "hunter2") else { return };
    let main = dir.path().join("module/main.tf");
    let text = std::fs::read_to_string(&main).unwrap();
    let check = "\nresource \"terraform_data\" \"bad\" {\n lifecycle {\n precondition {\n condition = nonsensitive(var.kubeconfig) == \"\"\n error_message = \"no quota for ${nonsensitive(var.kubeconfig)}\"\n }\n }\n}\n";
    std::fs::write(&main, text + check).unwrap();
    config.timeout_s = 60;
    let terraform = machine(&config, dir.path(), "work");
    let Err(error) = terraform.apply(&input(), &Shared::default()).await else {
        panic!("it cannot be created")
    };
    let error = error.to_string();
    assert!(error.contains("no quota") && !error.contains("hunter2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terraform_cluster_is_created_waits_for_its_agent_and_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let Some(terraform) = config(dir.path(), 0, "") else { return };
    let file = clusters_file(
        dir.path(),
        "clusters:\n- {name: made, cluster_id: made, region: r1, provider_type: terraform}\n",
    );
    let stage = Stage::start(dir.path(), |config| {
        config.clusters_file = file;
        config.terraform = terraform;
    })
    .await;
    let made = stage.until_cluster("made", Phase::Waiting).await;
    assert_eq!(made.spec.external_id, "ext-made");
    assert_eq!(made.spec.dns_name, "apps.made.r1.example");
    stage.agent_reports("made", "True").await;
    stage.until_cluster("made", Phase::Ready).await;
    stage.delete_cluster("made", false).await;
    stage.until_gone("made").await;
    assert_eq!(log(dir.path()), ["began", "made", "removed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_one_replica_created_is_deleted_by_another() {
    let Some(fresh) = testkit::stores::postgres().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(terraform) = config(dir.path(), 0, "") else { return };
    let file = clusters_file(
        dir.path(),
        "clusters:\n- {name: made, cluster_id: made, region: r1, provider_type: terraform}\n",
    );
    let configure = |config: &mut fleet::Config| {
        config.clusters_file = file.clone();
        config.terraform = terraform.clone();
    };
    let [first, second] = ["a", "b"].map(|name| dir.path().join(name));
    for place in [&first, &second] {
        std::fs::create_dir(place).unwrap();
    }
    let stage = Stage::on(fresh.store.clone(), &first, configure).await;
    stage.until_cluster("made", Phase::Waiting).await;
    stage.end().await;
    // Replicas share their keys, and nothing else.
    for key in ["fleet-key", "identity-key.pem"] {
        let _ = std::fs::copy(first.join(key), second.join(key));
    }
    let stage = Stage::on(fresh.replica().await.unwrap(), &second, configure).await;
    stage.delete_cluster("made", false).await;
    stage.until_gone("made").await;
    assert_eq!(log(dir.path()), ["began", "made", "removed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_installed_with_the_kubeconfig_of_the_module() {
    let Some(server) = testkit::kubernetes() else { return };
    let (dir, id) = (tempfile::tempdir().unwrap(), unique());
    let admin = server.admin();
    let Some(terraform) = config(dir.path(), 0, admin.kubeconfig()) else { return };
    let entry =
        format!("clusters:\n- {{name: {id}, cluster_id: {id}, provider_type: terraform}}\n");
    let file = clusters_file(dir.path(), &entry);
    let stage = Stage::start(dir.path(), |config| {
        config.clusters_file = file;
        config.terraform = terraform;
        config.kubernetes.namespace = id.clone();
    })
    .await;
    stage.until_cluster(&id, Phase::Waiting).await;
    let client = KubeClient::from_kubeconfig(admin.kubeconfig(), None).await.unwrap();
    let deployment = ObjectRef::new("apps/v1", "Deployment", &id, "mainstay-agent");
    assert!(client.delete(&deployment).await.unwrap(), "the agent is installed");
    eventually("it exists again", async || client.get(&deployment).await.unwrap().is_some()).await;
    let stored = stage.store.object(&fleet::model::cluster::key(&id)).await.unwrap().unwrap();
    assert!(!stored.status.text().contains("certificate"), "the kubeconfig is not stored");
    stage.delete_cluster(&id, false).await;
    stage.until_gone(&id).await;
    assert_eq!(log(dir.path()), ["began", "made", "removed"]);
    // The API server is shared, and Terraform did not create it.
    let rbac = "rbac.authorization.k8s.io/v1";
    for (api, kind) in [("v1", "Namespace"), (rbac, "ClusterRole"), (rbac, "ClusterRoleBinding")] {
        client.delete(&ObjectRef::new(api, kind, "", &id)).await.unwrap();
    }
}
