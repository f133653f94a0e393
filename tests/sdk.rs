//! The clients that people have for the existing service, unmodified, against the binary: every
//! operation of the npm package, and the generated Python client and the command line from a
//! creation to its end.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use support::{Plan, Server};
use testkit::servers::package;

const QUOTA: &str = "
registered_users_per_organisation:
  - id: local
    any_user: true
    max_allowed_instances: 10
    granted_quota:
      - instance_type_id: standard
        kafka_billing_models: [{ id: standard }, { id: eval }, { id: enterprise }]
";

/// As in sdk/package.json, sdk/requirements.txt and sdk/cli/go.mod.
const NPM: &str = "1.0.2";
const PYPI: &str = "1.0.5";
const CLI: &str = "0.53.0";

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk")
}

fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{program} cannot run"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{program}: {}{}", text(&output.stdout), text(&output.stderr));
    Ok(text(&output.stdout))
}

fn npm_package() -> Option<PathBuf> {
    package("kafka-management-sdk", NPM, |dir| {
        run(Command::new("node").arg("--version"))?;
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(files().join(file), dir.join(file))?;
        }
        let ci = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"];
        run(Command::new("npm").args(ci).arg(dir)).map(drop)
    })
}

fn python_package() -> Option<PathBuf> {
    package("rhoas-sdks", PYPI, |dir| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir))?;
        // Through python itself: the scripts in it name the directory, which is about to move.
        let pip =
            ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-deps"];
        let mut pip_install = Command::new(dir.join("bin/python"));
        run(pip_install.args(pip).arg("-r").arg(files().join("requirements.txt"))).map(drop)
    })
}

fn command_line() -> Option<PathBuf> {
    package("rhoas", CLI, |dir| {
        let source = dir.join("source");
        std::fs::create_dir(&source)?;
        for file in ["go.mod", "go.sum", "needs.go"] {
            std::fs::copy(files().join("cli").join(file), source.join(file))?;
        }
        let mut go = Command::new("go");
        go.current_dir(&source).args(["build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o"]);
        go.arg(dir.join("rhoas")).arg("github.com/redhat-developer/app-services-cli/cmd/rhoas");
        run(&mut go).map(drop)
    })
}

/// A server for a client, and the client's environment.
async fn stage(dir: &Path) -> (Plan, Server, Vec<(&'static str, String)>) {
    kernel::outbound::install_tls();
    let quota = dir.join("quota.yaml");
    std::fs::write(&quota, QUOTA).expect("the quota file can be written");
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir);
    // Where the script plays a Prometheus.
    let metrics = plan.elsewhere();
    let plan = plan
        .set("fleet.local.enabled", true)
        .set("fleet.quota_file", quota.display())
        .set("fleet.prometheus.url", metrics.url());
    let server = plan.start().await;
    let token = |args: &[&str]| {
        let ran = plan.run(&[&["token"], args].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stdout.trim().to_owned()
    };
    let env = vec![
        ("BASE", plan.url()),
        ("TOKEN", token(&["--subject", "tess", "--org-admin"])),
        ("STRANGER", token(&["--subject", "sam", "--org", "elsewhere"])),
        ("METRICS_PORT", metrics.port.to_string()),
    ];
    (plan, server, env)
}

#[tokio::test]
async fn every_operation_of_the_npm_package() {
    let Some(package) = npm_package() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (plan, _server, env) = stage(dir.path()).await;
    let mut node = Command::new("node");
    node.arg(files().join("run.cjs")).env("NODE_PATH", package.join("node_modules")).envs(env);
    let said = run(&mut node).unwrap_or_else(|error| panic!("{error}\n{}", plan.log()));
    assert_eq!(said, "26 operations\n");
}

/// Its DELETE raises unless the answer is an object like an error's.
#[tokio::test]
async fn the_python_client_from_a_creation_to_its_end() {
    let Some(package) = python_package() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (plan, _server, env) = stage(dir.path()).await;
    let mut python = Command::new(package.join("bin/python"));
    python.arg(files().join("run.py")).envs(env).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = run(&mut python).unwrap_or_else(|error| panic!("{error}\n{}", plan.log()));
    assert_eq!(said, "python: done\n");
}

/// The command line, as one person uses it. It is kept from asking anyone but the server.
struct Person<'a> {
    program: PathBuf,
    home: &'a Path,
}

impl Person<'_> {
    fn ask(&self, args: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.home).env("HOME", self.home);
        command.env("XDG_CONFIG_HOME", self.home.join("config")).env("RHOAS_TELEMETRY", "false");
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("NO_PROXY", "127.0.0.1");
        let output = command.output().expect("it can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    fn does(&self, args: &[&str]) -> String {
        let (done, stdout, stderr) = self.ask(args);
        assert!(done, "rhoas {}: {stdout}{stderr}", args.join(" "));
        stdout
    }

    fn reads(&self, args: &[&str]) -> Value {
        let said = self.does(args);
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("rhoas {args:?}: {e}: {said}"))
    }

    /// What it says when it fails.
    fn fails(&self, args: &[&str]) -> String {
        let (done, stdout, stderr) = self.ask(args);
        assert!(!done, "rhoas {}: {stdout}{stderr}", args.join(" "));
        stderr
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_from_sign_in_to_sign_out() {
    let Some(package) = command_line() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (plan, _server, _) = stage(dir.path()).await;
    let token = plan.run(&["token", "--subject", "tess", "--offline"]);
    assert_eq!(token.code, 0, "{token:?}");
    let person = Person { program: package.join("rhoas"), home: dir.path() };
    let url = plan.url();
    let realm = format!("{url}/auth/realms/mainstay");
    let token = token.stdout.trim();
    person.does(&["login", "--api-gateway", &url, "--auth-url", &realm, "--token", token]);
    assert_eq!(person.does(&["whoami"]).trim(), "tess");

    // Terms, account and quota are asked before. There is more than one sort of quota.
    let asked = ["kafka", "create", "--name", "demo", "--wait", "-o", "json"];
    assert!(person.fails(&asked).contains("--billing-model"), "which of two?");
    let made =
        person.reads(&[&asked[..], &["--billing-model", "standard", "--size", "x1"]].concat());
    assert_eq!(made["status"], "ready", "{made}");
    assert_eq!((&made["name"], &made["instance_type"]), (&json!("demo"), &json!("standard")));
    let again = person.fails(&["kafka", "create", "--name", "demo", "--billing-model", "eval"]);
    assert!(again.contains("already exists"), "{again}");
    assert!(person.does(&["kafka", "billing"]).contains("standard"));
    assert_eq!(person.reads(&["kafka", "list", "-o", "json"])["total"], 1);
    person.does(&["kafka", "update", "--name", "demo", "--reauthentication", "false", "-y"]);
    let read = person.reads(&["kafka", "describe", "--name", "demo"]);
    assert_eq!((&read["id"], &read["reauthentication_enabled"]), (&made["id"], &json!(false)));
    person.does(&["kafka", "delete", "--name", "demo", "-y"]);

    let file = ["--file-format", "json", "--output-file", "account.json", "--overwrite"];
    let account = ["service-account", "create", "--short-description", "robot"];
    person.does(&[&account[..], &file].concat());
    let written = || -> Value {
        serde_json::from_slice(&std::fs::read(dir.path().join("account.json")).unwrap()).unwrap()
    };
    let first = written();
    let all = person.reads(&["service-account", "list", "-o", "json"]);
    assert_eq!((&all[0]["name"], &all[0]["clientId"]), (&json!("robot"), &first["clientID"]));
    assert!(all[0].get("secret").is_none(), "{all}");
    let id = all[0]["id"].as_str().unwrap();
    person.does(&[&["service-account", "reset-credentials", "--id", id, "-y"], &file[..]].concat());
    assert_ne!(written()["clientSecret"], first["clientSecret"]);
    person.does(&["service-account", "delete", "--id", id, "-y"]);
    let gone = person.fails(&["service-account", "describe", "--id", id]);
    assert!(gone.contains("not found"), "{gone}");

    person.does(&["logout"]);
    assert!(person.fails(&["kafka", "list"]).contains("rhoas login"));
}
