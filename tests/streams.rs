//! The verbs for streams as a person uses them, on a real API server.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::{Plan, wait_for};
use testkit::kubernetes::Kubernetes;

const GROUP: &str = "streaming.sneaksanddata.com";

/// A cluster with streams, and someone at a command line.
struct Stage {
    plan: Plan,
    kubeconfig: PathBuf,
    _cluster: Kubernetes,
    _dir: tempfile::TempDir,
}

/// A kind of streams that keeps everything.
fn plugin(kind: &str, plural: &str) -> Value {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": open, "status": open } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

fn class(name: &str, kind: &str, plural: &str) -> Value {
    object(
        "StreamClass",
        "",
        name,
        json!({ "apiVersion": "v1", "kindRef": kind, "pluralName": plural }),
    )
}

fn object(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn flat(suspended: bool) -> Value {
    let template = json!({ "name": "standard" });
    json!({ "suspended": suspended, "jobTemplateRef": template, "backfillJobTemplateRef": template })
}

fn v1(suspended: bool) -> Value {
    let template = json!({ "name": "standard", "namespace": "prod" });
    json!({ "execution": {
        "layoutVersion": "v1", "suspended": suspended, "backfillJobTemplateRef": template,
        "streamingBackend": { "changeCapture": { "jobTemplateRef": template } },
    } })
}

fn template(image: &str) -> Value {
    let pod =
        json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": image }] });
    json!({ "spec": { "backoffLimit": 0, "template": { "spec": pod } } })
}

impl Stage {
    async fn new() -> Option<Stage> {
        let dir = tempfile::tempdir().unwrap();
        let ours =
            Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path()).run(&["crds", "--format", "json"]);
        assert_eq!(ours.code, 0, "{ours:?}");
        let mut crds = ours.json()["items"].as_array().unwrap().clone();
        crds.extend([plugin("FlatStream", "flat-streams"), plugin("RichStream", "rich-streams")]);
        let stage = Stage::with(&crds).await?;
        stage.apply(&[
            class("flat", "FlatStream", "flat-streams"),
            class("rich", "RichStream", "rich-streams"),
            class("ghost", "GhostStream", "ghost-streams"),
            object("StreamingJobTemplate", "prod", "standard", template("mock:hang")),
        ]);
        Some(stage)
    }

    /// With these definitions, and the namespace `prod`.
    async fn with(crds: &[Value]) -> Option<Stage> {
        let shared = testkit::kubernetes()?;
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path());
        let at = dir.path().join("crds");
        std::fs::create_dir(&at).unwrap();
        for (i, crd) in crds.iter().enumerate() {
            std::fs::write(at.join(format!("{i}.yaml")), crd.to_string()).unwrap();
        }
        let cluster = shared.private(&[("crds", at.to_str().unwrap())]).await;
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.admin().kubeconfig()).unwrap();
        let stage = Stage { plan, kubeconfig, _cluster: cluster, _dir: dir };
        let metadata = json!({ "name": "prod" });
        stage.apply(&[json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })]);
        Some(stage)
    }

    fn kubectl(&self, args: &[&str], input: &str) -> String {
        use std::io::Write as _;
        use std::process::Stdio;
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl is installed");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "kubectl {args:?}: {said}");
        String::from_utf8(ended.stdout).unwrap()
    }

    fn apply(&self, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.kubectl(&["apply", "-f", "-"], &list.to_string());
    }

    fn get(&self, plural: &str, name: &str) -> Value {
        let text = self.kubectl(&["get", plural, name, "-n", "prod", "-o", "json"], "");
        serde_json::from_str(&text).unwrap()
    }

    fn phase(&self, plural: &str, name: &str, phase: &str, message: &str) {
        let condition = json!({ "type": "Ready", "status": "True", "message": message });
        let status = json!({ "status": { "phase": phase, "conditions": [condition] } });
        let args = ["patch", plural, name, "-n", "prod", "--subresource=status", "--type=merge"];
        self.kubectl(&[&args[..], &["-p", &status.to_string()]].concat(), "");
    }

    /// In the namespace `prod`.
    fn run(&self, args: &[&str]) -> support::server::Ran {
        let kubeconfig = self.kubeconfig.to_str().unwrap();
        let mut all = vec!["stream"];
        all.extend(args);
        all.extend(["--kubeconfig", kubeconfig]);
        if !args.contains(&"-A") {
            all.extend(["-n", "prod"]);
        }
        self.plan.run(&all)
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        format!("{}{}", ran.stdout, ran.stderr)
    }
}

#[track_caller]
fn has(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_found_changed_and_explained_without_a_server_or_an_operator() {
    let Some(stage) = Stage::new().await else { return };
    has(&stage.ok(&["list"]), &["no such stream in namespace prod", "GhostStream"]);
    stage.apply(&[
        object("FlatStream", "prod", "orders", flat(false)),
        object("FlatStream", "prod", "both", flat(false)),
        object("RichStream", "prod", "both", v1(false)),
        object("RichStream", "prod", "rich", v1(true)),
    ]);
    let listed = stage.run(&["list", "-o", "json"]);
    let names: Vec<&str> = listed.json().as_array().unwrap().iter().map(|_| "").collect();
    assert_eq!(names.len(), 4, "{listed:?}");
    has(&stage.ok(&["list", "-A"]), &["orders", "RichStream", "change-capture", "ghost-streams"]);
    assert!(!stage.ok(&["list", "--class", "rich"]).contains("orders"));

    let several = stage.run(&["get", "both"]);
    assert_eq!(several.code, 2, "{several:?}");
    has(&several.stderr, &["FlatStream/both", "RichStream/both"]);
    assert_eq!(stage.run(&["get", "rich/both", "-o", "json"]).json()["kind"], "RichStream");
    let missing = stage.run(&["get", "nothing"]);
    assert_eq!(missing.code, 5, "{missing:?}");
    has(&missing.stderr, &["nothing", "prod", "GhostStream", "CRD is not installed"]);

    has(&stage.ok(&["stop", "orders"]), &["FlatStream/orders is being suspended"]);
    assert_eq!(stage.get("flat-streams", "orders")["spec"]["suspended"], true);
    let told = stage.ok(&["describe", "orders"]);
    has(
        &told,
        &["spec.suspended is true", "stream start FlatStream/orders -n prod", "No operator"],
    );
    has(&stage.ok(&["start", "orders", "rich"]), &["orders goes on", "rich goes on"]);
    assert_eq!(stage.get("flat-streams", "orders")["spec"]["suspended"], false);
    assert_eq!(stage.get("rich-streams", "rich")["spec"]["execution"]["suspended"], false);
    has(&stage.ok(&["restart", "orders"]), &["started anew"]);
    let restart =
        &stage.get("flat-streams", "orders")["metadata"]["annotations"]["mainstay.io/restart"];
    assert!(restart.is_string(), "{restart}");

    stage.phase("rich-streams", "rich", "Failed", "The stream has failed: exit code 1.");
    let told = stage.run(&["describe", "rich", "-o", "json"]).json();
    let codes: Vec<&str> =
        told["reasons"].as_array().unwrap().iter().map(|r| r["code"].as_str().unwrap()).collect();
    has(&codes.join(" "), &["class-not-ready", "failed"]);
    let logs = stage.run(&["logs", "rich"]);
    assert_eq!(logs.code, 5, "{logs:?}");
    has(&logs.stderr, &["has no pod"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_is_asked_for_waited_for_and_its_end_is_the_exit_code() {
    let Some(stage) = Stage::new().await else { return };
    stage.apply(&[object("RichStream", "prod", "orders", v1(false))]);
    let bad = stage.run(&["backfill", "orders", "--payload", "[1]"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    let made = stage.run(&["backfill", "orders", "--payload", "{\"a\": {\"b\": 1}}", "-o", "json"]);
    let made = made.json();
    assert_eq!(
        made["spec"],
        json!({
            "streamClass": "rich", "streamId": "orders", "completed": false, "payload": { "a": { "b": 1 } },
        })
    );
    has(made["metadata"]["name"].as_str().unwrap(), &["orders-backfill-"]);
    stage.kubectl(&["delete", "bfr", "--all", "-n", "prod"], "");

    let late = stage.run(&["backfill", "orders", "--wait", "--timeout", "1s"]);
    assert_eq!(late.code, 7, "{late:?}");
    has(&late.stderr, &["No operator is running"]);
    stage.kubectl(&["delete", "bfr", "--all", "-n", "prod"], "");

    // Someone plays the operator: well, then badly, then by removing it.
    for (patch, code, said) in [
        (Some(json!({ "spec": { "completed": true } })), 0, "has been backfilled"),
        (
            Some(json!({ "status": { "phase": "Failed", "conditions": [{
            "type": "Error", "status": "True", "reason": "No", "message": "no such class",
            "lastTransitionTime": "2026-11-16T07:00:00Z",
        }] } })),
            6,
            "no such class",
        ),
        (None, 6, "was removed"),
    ] {
        let mut command =
            stage.plan.command(&["stream", "backfill", "orders", "--wait", "-n", "prod"]);
        command.arg("--kubeconfig").arg(&stage.kubeconfig);
        let log = stage.plan.dir.join("waiting");
        command.stderr(std::fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        wait_for("a request", async || {
            stage.kubectl(&["get", "bfr", "-n", "prod", "-o", "name"], "").contains('/')
        })
        .await;
        let name = stage.kubectl(&["get", "bfr", "-n", "prod", "-o", "name"], "");
        let name = name.trim();
        match patch {
            Some(patch) => {
                let status = patch.get("status").is_some();
                let mut args = vec!["patch", name, "-n", "prod", "--type=merge"];
                let patch = patch.to_string();
                args.extend(["-p", &patch]);
                args.extend(status.then_some("--subresource=status"));
                stage.kubectl(&args, "");
            }
            None => drop(stage.kubectl(&["delete", name, "-n", "prod"], "")),
        }
        let ended = child.wait().unwrap();
        let told = std::fs::read_to_string(&log).unwrap();
        assert_eq!(ended.code(), Some(code), "{told}");
        has(&told, &[said]);
        stage.kubectl(&["delete", "bfr", "--all", "-n", "prod"], "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downtime_suspends_many_and_lets_the_same_ones_go_on() {
    let Some(stage) = Stage::new().await else { return };
    stage.apply(&[
        object("FlatStream", "prod", "sales-a", flat(false)),
        object("FlatStream", "prod", "sales-off", flat(true)),
        object("RichStream", "prod", "sales-b", v1(false)),
        object("RichStream", "prod", "other", v1(false)),
    ]);
    let bad = stage.run(&["downtime", "declare", "a b", "--prefix", "x"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    let dry = stage.ok(&["downtime", "declare", "move", "--prefix", "sales-", "--dry-run"]);
    has(&dry, &["2 streams would be", "sales-off is suspended already"]);
    assert_eq!(stage.get("flat-streams", "sales-a")["spec"]["suspended"], false);
    has(
        &stage.ok(&["downtime", "declare", "move", "--prefix", "sales-"]),
        &["2 streams are being"],
    );
    let one = stage.get("rich-streams", "sales-b");
    assert_eq!(one["spec"]["execution"]["suspended"], true);
    assert_eq!(one["metadata"]["labels"]["arcane.sneaksanddata.com/downtime"], "move");
    let begin = &one["metadata"]["annotations"]["arcane.sneaksanddata.com/downtime-begin-ts"];
    assert!(begin.as_str().unwrap().ends_with('Z'), "{begin}");
    has(&stage.ok(&["describe", "sales-b"]), &["part of the downtime move", "downtime stop move"]);
    has(&stage.ok(&["downtime", "list", "-A"]), &["move", "2", "prod"]);
    let details = stage.ok(&["downtime", "details", "move"]);
    has(&details, &["sales-a", "sales-b"]);
    assert!(!details.contains("other") && !details.contains("sales-off"), "{details}");
    has(&stage.ok(&["downtime", "stop", "move"]), &["2 streams go on"]);
    let one = stage.get("rich-streams", "sales-b");
    assert_eq!(one["spec"]["execution"]["suspended"], false);
    assert!(one["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty));
    assert_eq!(stage.get("flat-streams", "sales-off")["spec"]["suspended"], true);
    assert_eq!(stage.run(&["downtime", "stop", "move"]).code, 5);
    has(&stage.ok(&["downtime", "list"]), &["there is no downtime"]);
}

/// An operator in a process of its own; ended with the value.
struct Operator(std::process::Child);

impl Operator {
    fn start(stage: &Stage, more: &[&str]) -> Operator {
        let mut command =
            stage.plan.command(&["operator", "--probes-addr", "", "--metrics-addr", ""]);
        command.arg("--kubeconfig").arg(&stage.kubeconfig).args(more).current_dir(&stage.plan.dir);
        let log = std::fs::File::create(stage.plan.dir.join("operator")).unwrap();
        command.stderr(log);
        Operator(command.spawn().unwrap())
    }

    /// As a person ends it.
    fn stop(&mut self) -> Option<i32> {
        let pid = self.0.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_operator_streams_run_and_what_is_asked_of_them_comes_about() {
    let Some(stage) = Stage::new().await else { return };
    stage.kubectl(&["delete", "streamclasses", "ghost"], "");
    let ok = object("StreamingJobTemplate", "prod", "quick", template("mock:ok"));
    let bad = object("StreamingJobTemplate", "prod", "broken", template("mock:fail"));
    let mut orders = v1(false);
    orders["execution"]["backfillJobTemplateRef"]["name"] = "quick".into();
    let mut failing = orders.clone();
    failing["execution"]["streamingBackend"]["changeCapture"]["jobTemplateRef"]["name"] =
        "broken".into();
    let mut lost = orders.clone();
    lost["execution"]["backfillJobTemplateRef"]["name"] = "nowhere".into();
    stage.apply(&[ok, bad, object("RichStream", "prod", "orders", orders)]);
    let mut operator = Operator::start(&stage, &[]);
    wait_for("orders to run", async || {
        stage.run(&["get", "orders", "-o", "json"]).json()["status"]["phase"] == "Running"
    })
    .await;
    let log = std::fs::read_to_string(stage.plan.dir.join("operator")).unwrap();
    has(
        &log,
        &[
            "watches  all namespaces",
            "Lease mainstay-operator",
            "health   nowhere",
            "this one acts",
        ],
    );
    let told = stage.ok(&["describe", "orders"]);
    has(
        &told,
        &["It runs since", "Backfill requests", "completed", "What happened", "rich (Ready)"],
    );
    assert!(!told.contains("->"), "nothing needs to change: {told}");

    has(&stage.ok(&["stop", "orders", "--wait"]), &["orders is Suspended"]);
    has(&stage.ok(&["start", "orders", "--wait"]), &["orders is Running"]);
    let before = stage.get("jobs", "orders")["metadata"]["uid"].clone();
    has(&stage.ok(&["restart", "orders", "--wait"]), &["started anew"]);
    assert_ne!(stage.get("jobs", "orders")["metadata"]["uid"], before);
    has(&stage.ok(&["backfill", "orders", "--wait"]), &["has been backfilled"]);

    stage.apply(&[
        object("RichStream", "prod", "failing", failing),
        object("RichStream", "prod", "lost", lost),
    ]);
    wait_for("failing to fail", async || {
        stage.run(&["get", "failing", "-o", "json"]).json()["status"]["phase"] == "Failed"
    })
    .await;
    has(
        &stage.ok(&["describe", "failing"]),
        &["Its Job failed", "stream restart RichStream/failing"],
    );
    let again = stage.run(&["restart", "failing", "--wait"]);
    has(&again.stderr, &["failing"]);
    wait_for("lost to say why", async || {
        stage.ok(&["describe", "lost"]).contains("prod/nowhere that it names does not exist")
    })
    .await;

    assert_eq!(operator.stop(), Some(0));
    has(
        &stage.ok(&["describe", "orders"]),
        &["No operator is running: the last one gave back the Lease"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_to_a_server_streams_appear_there_and_go() {
    let Some(stage) = Stage::new().await else { return };
    stage.apply(&[
        object("RichStream", "prod", "orders", v1(true)),
        object("FlatStream", "prod", "sales", flat(true)),
    ]);
    let _server = stage.plan.start().await;
    assert_eq!(stage.plan.run(&["login", "--local"]).code, 0);
    let token = stage.plan.run(&["token", "--subject", "operator", "--agent-of", "prod-eu"]);
    let file = stage.plan.dir.join("token");
    std::fs::write(&file, token.stdout).unwrap();
    let (url, file) = (stage.plan.url(), file.to_str().unwrap().to_owned());
    let _operator = Operator::start(&stage, &["--connect", &url, "--connect-token-file", &file]);
    let list = |phase: &str| {
        let listed = stage.plan.run(&["list", "stream", "--phase", phase, "-o", "json"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.json().as_array().unwrap().clone()
    };
    wait_for("both to appear", async || list("suspended").len() == 2).await;
    let found = stage.plan.run(&["search", "orders", "-o", "json"]).json();
    assert_eq!(found[0]["labels"]["cluster"], "prod-eu", "{found}");
    let key = found[0]["key"].as_str().unwrap().to_owned();
    let graph = stage.plan.client().read(&format!("/api/v1/objects/{key}/graph")).await;
    has(&graph.to_string(), &["stream-class/"]);

    stage.ok(&["start", "orders"]);
    wait_for("orders to go on", async || list("suspended").len() == 1).await;
    stage.kubectl(&["delete", "flat-streams", "sales", "-n", "prod"], "");
    wait_for("sales to go", async || list("suspended").is_empty()).await;
    let events = stage.plan.run(&["events", "-o", "json"]);
    has(
        &events.stdout,
        &["mainstay.stream.created", "mainstay.stream.deleted", "mainstay.stream-class.created"],
    );
    // Nothing happens, so nothing is written.
    let before = stage.plan.run(&["events", "-o", "json"]).stdout;
    let other = object("StreamingJobTemplate", "prod", "unused", template("mock:ok"));
    stage.apply(&[other]);
    assert_eq!(stage.plan.run(&["events", "-o", "json"]).stdout, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_v1beta1_are_asked_by_their_annotation() {
    let beta = |kind: &str, plural: &str| {
        let mut crd = plugin(kind, plural);
        crd["spec"]["versions"][0]["name"] = "v1beta1".into();
        crd
    };
    let crds = [
        beta("StreamClass", "stream-classes"),
        plugin("StreamingJobTemplate", "streaming-job-templates"),
        beta("JsonStream", "json-streams"),
    ];
    let Some(stage) = Stage::with(&crds).await else { return };
    let named =
        json!({ "apiVersion": "v1beta1", "kindRef": "JsonStream", "pluralName": "json-streams" });
    let reference = json!({ "jobTemplateRef": { "name": "standard" } });
    let mut objects = [
        object("StreamClass", "prod", "json", named),
        object("JsonStream", "prod", "orders", reference),
    ];
    for object in &mut objects {
        object["apiVersion"] = format!("{GROUP}/v1beta1").into();
    }
    stage.apply(&objects);
    let job = template("mock:hang")["spec"].clone();
    let holder = json!({ "metadata": {}, "template": { "spec": job } });
    stage.apply(&[object("StreamingJobTemplate", "prod", "standard", holder)]);
    let state =
        || stage.get("json-streams", "orders")["metadata"]["annotations"]["arcane/state"].clone();
    stage.ok(&["stop", "orders"]);
    assert_eq!(state(), "suspended");
    has(&stage.ok(&["describe", "orders"]), &["the annotation arcane/state says so"]);
    stage.ok(&["start", "orders"]);
    assert_eq!(state(), Value::Null);
    let mut operator = Operator::start(&stage, &[]);
    wait_for("orders to run", async || {
        let stream = stage.get("json-streams", "orders");
        matches!(stream["status"]["phase"].as_str(), Some("RUNNING" | "RELOADING"))
    })
    .await;
    has(&stage.ok(&["list", "-A"]), &["orders", "JsonStream", "change-capture"]);
    stage.ok(&["stop", "orders", "--wait"]);
    assert_eq!(stage.get("json-streams", "orders")["status"]["phase"], "SUSPENDED");
    has(&stage.ok(&["backfill", "orders"]), &["asked for"]);
    wait_for("a backfill", async || {
        stage.get("json-streams", "orders")["status"]["phase"] == "RELOADING"
    })
    .await;
    assert_eq!(operator.stop(), Some(0));
}

#[test]
fn without_a_kubeconfig_it_says_where_to_get_one() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path());
    let ran = plan.run(&["stream", "list"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    has(&ran.stderr, &["--kubeconfig"]);
    let no_file = plan.run(&["stream", "list", "--kubeconfig", "/no/such/file"]);
    assert_eq!(no_file.code, 2, "{no_file:?}");
    assert!(Path::new("/no/such/file").exists() || no_file.stderr.contains("/no/such/file"));
}
