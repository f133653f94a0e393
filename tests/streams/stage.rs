//! A cluster with streams, a command line, and an operator.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use support::Plan;
use testkit::kubernetes::{Kubernetes, open_crd};

pub const GROUP: &str = "streaming.sneaksanddata.com";

/// A cluster with streams and the command line.
pub struct Stage {
    pub plan: Plan,
    pub kubeconfig: PathBuf,
    _cluster: Kubernetes,
    _dir: tempfile::TempDir,
}

/// A kind of streams that preserves unknown fields.
pub fn plugin(kind: &str, plural: &str) -> Value {
    open_crd(GROUP, kind, plural)
}

pub fn class(name: &str, kind: &str, plural: &str) -> Value {
    object(
        "StreamClass",
        "",
        name,
        json!({ "apiVersion": "v1", "kindRef": kind, "pluralName": plural }),
    )
}

pub fn object(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

pub fn flat(suspended: bool) -> Value {
    let template = json!({ "name": "standard" });
    json!({ "suspended": suspended, "jobTemplateRef": template, "backfillJobTemplateRef": template })
}

pub fn v1(suspended: bool) -> Value {
    let template = json!({ "name": "standard", "namespace": "prod" });
    json!({ "execution": {
        "layoutVersion": "v1", "suspended": suspended, "backfillJobTemplateRef": template,
        "streamingBackend": { "changeCapture": { "jobTemplateRef": template } },
    } })
}

pub fn template(image: &str) -> Value {
    let pod =
        json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": image }] });
    json!({ "spec": { "backoffLimit": 0, "template": { "spec": pod } } })
}

impl Stage {
    pub async fn new() -> Option<Stage> {
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

    /// A server with these CRDs and the namespace `prod`.
    pub async fn with(crds: &[Value]) -> Option<Stage> {
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

    pub fn kubectl(&self, args: &[&str], input: &str) -> String {
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

    pub fn apply(&self, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.kubectl(&["apply", "-f", "-"], &list.to_string());
    }

    pub fn get(&self, plural: &str, name: &str) -> Value {
        let text = self.kubectl(&["get", plural, name, "-n", "prod", "-o", "json"], "");
        serde_json::from_str(&text).unwrap()
    }

    pub fn phase(&self, plural: &str, name: &str, phase: &str, message: &str) {
        let condition = json!({ "type": "Ready", "status": "True", "message": message });
        let status = json!({ "status": { "phase": phase, "conditions": [condition] } });
        let args = ["patch", plural, name, "-n", "prod", "--subresource=status", "--type=merge"];
        self.kubectl(&[&args[..], &["-p", &status.to_string()]].concat(), "");
    }

    /// In the namespace `prod`.
    pub fn run(&self, args: &[&str]) -> support::server::Ran {
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
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        format!("{}{}", ran.stdout, ran.stderr)
    }
}

#[track_caller]
pub fn has(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

/// An operator process; killed when dropped.
pub struct Operator(std::process::Child);

impl Operator {
    pub fn start(stage: &Stage, more: &[&str]) -> Operator {
        let mut command =
            stage.plan.command(&["operator", "--probes-addr", "", "--metrics-addr", ""]);
        command.arg("--kubeconfig").arg(&stage.kubeconfig).args(more).current_dir(&stage.plan.dir);
        let log = std::fs::File::create(stage.plan.dir.join("operator")).unwrap();
        command.stderr(log);
        Operator(command.spawn().unwrap())
    }

    /// Stops it with SIGTERM.
    pub fn stop(&mut self) -> Option<i32> {
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
