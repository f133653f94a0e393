//! The real Terraform (or OpenTofu), with nothing to download.

use std::path::Path;
use std::time::Duration;

use fleet::model::cluster::Phase;
use fleet::ports::kubernetes::{KubeClient, ObjectRef};
use fleet::ports::terraform::{Config, Terraform, TerraformInput};
use kernel::telemetry::Secret;

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
    let secret = |text: &str| Secret::from(text);
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
    })
}

fn log(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn input() -> TerraformInput {
    TerraformInput { id: "c1".into(), region: "r1".into(), ..TerraformInput::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_created_once_and_destroyed_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 0, "text") else { return };
    let terraform = Terraform::new(config.clone(), dir.path().join("work"));
    assert!(terraform.outputs("c1").await.unwrap().is_none());
    let made = terraform.apply(&input()).await.unwrap();
    assert_eq!((made.external_id.as_str(), made.kubeconfig.as_str()), ("ext-c1", "text"));
    assert_eq!(made.dns_name, "apps.c1.r1.example");
    terraform.apply(&input()).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made"]);
    // Another process finds it.
    let other = Terraform::new(config, dir.path().join("work"));
    assert!(other.outputs("c1").await.unwrap().is_some_and(|found| found == made));
    other.destroy(&input(), true).await.unwrap();
    other.destroy(&input(), true).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made", "removed"]);
    assert!(other.outputs("c1").await.unwrap().is_none());
    other.apply(&input()).await.unwrap();
    assert_eq!(log(dir.path()).len(), 5, "it can be created again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_dead_server_is_waited_for_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 3, "") else { return };
    let work = dir.path().join("work");
    let first = Terraform::new(config.clone(), work.clone());
    let run = tokio::spawn(async move { first.apply(&input()).await.map(drop) });
    eventually("it began", async || log(dir.path()) == ["began"]).await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    let second = Terraform::new(config, work);
    second.apply(&input()).await.unwrap();
    assert_eq!(log(dir.path()), ["began", "made"], "one run, one cluster");
    second.destroy(&input(), true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_killed_run_the_next_one_converges() {
    let dir = tempfile::tempdir().unwrap();
    let Some(config) = config(dir.path(), 30, "") else { return };
    let work = dir.path().join("work");
    let first = Terraform::new(config.clone(), work.clone());
    let run = tokio::spawn(async move { first.apply(&input()).await.map(drop) });
    eventually("it began", async || log(dir.path()) == ["began"]).await;
    let record = std::fs::read_to_string(work.join("c1/mainstay-running.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let kill = format!("kill -s KILL -- -{}", record["pid"]);
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let error = tokio::time::timeout(Duration::from_secs(30), run).await.unwrap().unwrap();
    assert!(error.is_err());
    module(dir.path(), 0);
    let second = Terraform::new(config, work);
    second.apply(&input()).await.unwrap();
    assert_eq!(log(dir.path()).last().unwrap(), "made");
    second.destroy(&input(), true).await.unwrap();
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
    let terraform = Terraform::new(config, dir.path().join("work"));
    let Err(error) = terraform.apply(&input()).await else { panic!("it cannot be created") };
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
