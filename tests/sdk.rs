//! The clients that people have for the existing service, unmodified, against the binary: every
//! operation of the npm package, and the generated Python client from a creation to its end.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
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

/// As in sdk/package.json and sdk/requirements.txt.
const NPM: &str = "1.0.2";
const PYPI: &str = "1.0.5";

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
