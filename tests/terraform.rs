//! Terraform clusters and servers that are killed in the middle of a run: the run ends with its
//! server, and no replica creates the cluster twice.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use support::{Client, Plan, wait_for};
use testkit::postgres::Database;

/// A module whose resource takes as many seconds as the file `pause` says, and logs its process.
fn module(dir: &Path, pause_s: u32) {
    let module = dir.join("module");
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(dir.join("pause"), pause_s.to_string()).unwrap();
    let (log, pause) = (dir.join("made"), dir.join("pause"));
    let (log, pause) = (log.display(), pause.display());
    let text = format!(
        r#"
resource "terraform_data" "cluster" {{
  provisioner "local-exec" {{
    command = "echo began $$ >> {log}; sleep `cat {pause}`; echo made >> {log}"
  }}
}}
output "external_id" {{ value = terraform_data.cluster.id }}
"#
    );
    std::fs::write(module.join("main.tf"), text).unwrap();
    let clusters =
        "clusters:\n- {name: one, cluster_id: one, region: r1, provider_type: terraform}\n";
    std::fs::write(dir.join("clusters.yaml"), clusters).unwrap();
}

fn log(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("made")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn plan(dir: &Path) -> Option<Plan> {
    let real = testkit::terraform()?;
    let file = |name: &str| dir.join(name).display().to_string();
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir)
        .set("driver.lease_s", 2)
        .set("fleet.local.enabled", false)
        .set("fleet.clusters_file", file("clusters.yaml"))
        .set("fleet.terraform.program", real.server.get(""))
        .set("fleet.terraform.module_dir", file("module"))
        .set("fleet.terraform.environment.TF_CLI_CONFIG_FILE", real.server.get("cli_config"))
        .set("fleet.terraform.environment.HOME", dir.display());
    Some(plan)
}

/// The phase of the cluster, and why it is not further.
async fn cluster(client: &Client) -> (String, String) {
    let found = client.read("/api/v1/fleet/clusters").await;
    let cluster = found.as_array().unwrap().iter().find(|cluster| cluster["id"] == "one").cloned();
    let text = |name: &str| cluster.as_ref().map_or(String::new(), |it| it[name].to_string());
    (text("status"), found.to_string())
}

async fn until_created(client: &Client) {
    wait_for("the cluster is created", async || {
        cluster(client).await.0.contains("waiting_for_kas_fleetshard_operator")
    })
    .await;
}

/// Waits until the run has begun, kills its server, and waits until nothing of the run is left.
async fn kill_in_the_middle(dir: &Path, server: support::Server) {
    wait_for("the run began", async || log(dir).len() == 1).await;
    let pid = log(dir)[0].trim_start_matches("began ").to_owned();
    assert!(is_alive(&pid));
    server.kill();
    wait_for("the run ended", async || !is_alive(&pid)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_its_server_and_the_next_one_creates_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    module(dir.path(), 600);
    let Some(plan) = plan(dir.path()) else { return };
    kill_in_the_middle(dir.path(), plan.start().await).await;
    module(dir.path(), 0);
    let _server = plan.start().await;
    until_created(&plan.client()).await;
    let made = log(dir.path()).iter().filter(|line| *line == "made").count();
    assert_eq!(made, 1, "{:?}", log(dir.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_waits_for_the_state_of_the_killed_one_and_says_so() {
    let Some(database) = Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    module(dir.path(), 600);
    let Some(plan) = plan(dir.path()) else { return };
    let first = plan.database(database.url());
    let second = first.replica("second");
    kill_in_the_middle(dir.path(), first.start().await).await;
    module(dir.path(), 0);
    // Replicas share their keys, and nothing else.
    std::fs::create_dir_all(second.data()).unwrap();
    for key in ["fleet-key", "installation-key"] {
        std::fs::copy(first.data().join(key), second.data().join(key)).unwrap();
    }
    let _second = second.start().await;
    let client = first.client().at(&second.url());
    wait_for("the other replica says what it waits for", async || {
        cluster(&client).await.1.contains("did not hand in its state")
    })
    .await;
    assert_eq!(log(dir.path()).len(), 1, "it must not create the cluster: {:?}", log(dir.path()));

    let _first = first.start().await;
    until_created(&client).await;
    let made = log(dir.path()).iter().filter(|line| *line == "made").count();
    assert_eq!(made, 1, "{:?}", log(dir.path()));
}
