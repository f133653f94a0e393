//! The verbs: jobs of a server from the command line, and patches that are reviewed and applied.

use std::path::Path;

use kubernetes::{ApplyOptions, Client, ObjectRef};
use serde_json::{Value, json};
use support::Plan;
use support::server::Ran;
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History};

use crate::stage::{plan, prometheus};

const MIB: f64 = 1024.0 * 1024.0;

fn done(ran: Ran) -> Ran {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

fn advise(plan: &Plan, words: &[&str]) -> Ran {
    let server = plan.url();
    plan.run(&[&["advise"], words, &["--server", &server]].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_started_followed_over_a_restart_shown_and_deleted() {
    let Some(prometheus) = prometheus(600).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path(), &prometheus).set("advisor.shards_max", 1);
    let server = plan.start().await;
    let none = done(advise(&plan, &["jobs"]));
    assert!(none.stdout.is_empty() && none.stderr.contains("advise start --wait"), "{none:?}");

    let following = plan.clone();
    let follow = tokio::task::spawn_blocking(move || {
        advise(&following, &["start", "--datasource", "p", "--request-id", "one", "--wait"])
    });
    let client = plan.client();
    support::wait_for("the job reads", async || {
        let jobs = client.get("/api/v1/advisor/jobs").await;
        jobs.is_ok_and(|jobs| jobs.body["jobs"][0]["phase"] == "running")
    })
    .await;
    server.kill();
    let _server = plan.start().await;
    let followed = done(follow.await.unwrap());
    assert!(followed.stdout.contains("all 600 containers"), "{followed:?}");
    assert!(followed.stderr.contains("is started"), "{followed:?}");

    let again = done(advise(&plan, &["start", "--datasource", "p", "--request-id", "one"]));
    let id = again.stdout.trim().to_owned();
    let jobs = done(advise(&plan, &["jobs", "-o", "json"])).json();
    assert_eq!(jobs.as_array().unwrap().len(), 1, "{jobs}");
    assert_eq!(jobs[0]["job_id"], id.as_str());
    let shown = done(advise(&plan, &["job", &id, "--wait"]));
    assert!(shown.stdout.contains("completed  600"), "{shown:?}");
    let one = ["list", "--job", &id, "--container", "c0007", "-o", "csv"];
    assert_eq!(done(advise(&plan, &one)).stdout.lines().count(), 2);
    let some = done(advise(&plan, &["list", "--workload", "c0001,c0002", "-o", "json"])).json();
    assert_eq!(some.as_array().unwrap().len(), 2);
    done(advise(&plan, &["cancel", &id]));
    done(advise(&plan, &["delete", &id]));
    support::wait_for("it is gone", async || advise(&plan, &["job", &id]).code == 5).await;

    let unknown = advise(&plan, &["start", "--datasource", "nope"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("`nope` is not known; there are: p"), "{unknown:?}");
    let nothing =
        done(advise(&plan, &["start", "--datasource", "p", "--namespace", "x", "--wait"]));
    assert!(nothing.stderr.contains("Nothing to do."), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_source_is_added_read_and_deleted() {
    let Some(prometheus) = prometheus(3).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path(), &prometheus).set("advisor.private_addresses", true);
    // The name of the configuration is `p`; only members of an organisation have their own.
    let _server = plan.start().await;
    let url = prometheus.server.get("");
    let put = done(advise(&plan, &["datasource", "put", "own", "--url", url, "-o", "json"])).json();
    assert_eq!(put["name"], "own");
    let taken = advise(&plan, &["datasource", "put", "p", "--url", url]);
    assert_eq!(taken.code, 6, "{taken:?}");
    let away = advise(&plan, &["datasource", "put", "away", "--url", "http://127.0.0.1:1"]);
    assert_eq!(away.code, 2);
    assert!(away.stderr.contains("`away` does not answer"), "{away:?}");
    let ran = done(advise(&plan, &["start", "--datasource", "own", "--wait"]));
    assert!(ran.stdout.contains("all 3 containers"), "{ran:?}");
    let listed = done(advise(&plan, &["datasource", "list"]));
    assert!(listed.stdout.contains("own") && listed.stdout.contains(url), "{listed:?}");
    done(advise(&plan, &["datasource", "delete", "own"]));
    assert_eq!(advise(&plan, &["datasource", "delete", "own"]).code, 5);
}

/// A workload as somebody else has applied it, in a namespace of the test's own.
struct Target {
    client: Client,
    namespace: String,
}

impl Target {
    fn web(&self) -> Value {
        let container = json!({
            "name": "nginx", "image": "mock:hang",
            "resources": { "requests": { "cpu": "1", "memory": "1Gi" } },
        });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": self.namespace },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [container] },
                },
            },
        })
    }

    async fn resources(&self) -> Value {
        let name = ObjectRef::new("apps/v1", "Deployment", &self.namespace, "web");
        let found = self.client.get(&name).await.unwrap().unwrap();
        found["spec"]["template"]["spec"]["containers"][0]["resources"].clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_change_a_workload_only_after_they_were_shown_and_confirmed() {
    let (Some(kubernetes), Some(shared)) = (testkit::kubernetes(), testkit::prometheus()) else {
        return;
    };
    let namespace = kubernetes.namespace().await;
    let kubeconfig = namespace.account.kubeconfig();
    let client = Client::from_kubeconfig(kubeconfig, None).await.unwrap();
    let cluster = Target { client, namespace: namespace.name.clone() };
    let helm = ApplyOptions { field_manager: "helm", ..ApplyOptions::default() };
    cluster.client.apply_with(&cluster.web(), helm).await.unwrap();

    let container = Container::new("nginx", Load::steady(0.05), Load::steady(64.0 * MIB));
    let container = container.requests(1.0, 1024.0 * MIB);
    let workload = Workload::new(Kind::Deployment, "web", 2, vec![container]);
    let shop =
        Namespace { name: cluster.namespace.clone(), quota: None, workloads: vec![workload] };
    let end_s = kernel::Ambient::system().now().millis() / 1000;
    let measured = Cluster { seed: 1, namespaces: vec![shop] };
    let own = shared.private().await;
    own.write(&measured, History::two_hours(end_s)).await;

    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path());
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig).unwrap();
    let patches = dir.path().join("patches").display().to_string();
    let local = ["advise", "--prometheus", own.server.get(""), "--patches", &patches];
    let written = done(plan.run(&local));
    assert!(written.stderr.contains("1 patch is in"), "{written:?}");

    let apply = |more: &[&str]| {
        let at = file.display().to_string();
        plan.run(&[&["advise", "apply", &patches, "--kubeconfig", &at], more].concat())
    };
    let dry = apply(&["--dry-run", "--force-conflicts"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    assert!(dry.stdout.contains("nginx: requests.cpu 1 -> 50m"), "{dry:?}");
    assert!(dry.stdout.contains("nginx: limits.memory unset -> "), "{dry:?}");
    let unasked = apply(&["--force-conflicts"]);
    assert_eq!(unasked.code, 2, "{unasked:?}");
    assert!(unasked.stderr.contains("--yes"), "{unasked:?}");
    let owned = apply(&["--yes"]);
    assert_eq!(owned.code, 6, "{owned:?}");
    assert!(
        owned.stderr.contains("helm") && owned.stderr.contains("--force-conflicts"),
        "{owned:?}"
    );
    assert_eq!(cluster.resources().await["requests"]["cpu"], "1", "nothing is changed");

    done(apply(&["--yes", "--force-conflicts"]));
    let resources = cluster.resources().await;
    assert_eq!(resources["requests"]["cpu"], "50m", "{resources}");
    assert_eq!(resources["limits"], resources["requests"], "{resources}");
    let again = done(apply(&["--yes"]));
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
    // A later patch that says nothing of CPU leaves what the earlier one has set.
    let patch = std::fs::read_dir(&patches).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&patch).unwrap();
    let memory: String = text
        .lines()
        .filter(|line| !line.contains(" cpu:"))
        .map(|line| {
            format!(
                "{}\n",
                if line.contains("memory:") { "            memory: 99Mi" } else { line }
            )
        })
        .collect();
    std::fs::write(&patch, memory).unwrap();
    done(apply(&["--yes"]));
    let resources = cluster.resources().await;
    let both = json!({ "cpu": "50m", "memory": "99Mi" });
    assert_eq!((&resources["requests"], &resources["limits"]), (&both, &both), "{resources}");
    std::fs::write(&patch, text).unwrap();

    misfits(&plan, &file, Path::new(&patches));
}

/// Patches that cannot be applied, and why.
fn misfits(plan: &Plan, kubeconfig: &Path, dir: &Path) {
    let patch = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&patch).unwrap();
    for (wrong, code, part) in [
        (text.replace("name: nginx", "name: apache"), 2, "has no container `apache`"),
        (text.replace("name: web", "name: gone"), 5, "gone"),
        ("a: [".to_owned(), 2, "is not YAML"),
        ("kind: ConfigMap".to_owned(), 2, "patch.yaml"),
    ] {
        let file = plan.dir.join("patch.yaml");
        std::fs::write(&file, wrong).unwrap();
        let (file, at) = (file.display().to_string(), kubeconfig.display().to_string());
        let ran = plan.run(&["advise", "apply", &file, "--kubeconfig", &at, "--yes"]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
}
