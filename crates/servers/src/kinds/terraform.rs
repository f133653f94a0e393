//! Terraform, or OpenTofu where there is none, and a provider of ours whose things are files. A
//! tool: nothing of it runs between two calls.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::golang;
use crate::install::{GO, in_path};
use crate::versions::{TERRAFORM_MIN, TERRAFORM_PROVIDER, TOFU};
use crate::{Build, Cache, Install, Place, Server};

pub const SERVER: Server = Server {
    name: "terraform",
    version: "1.8 or newer",
    cost: "a provider built with Go, half a minute; without Terraform also OpenTofu, 8 minutes of CPU",
    needs: &[GO],
    installed: |cache| program(cache).is_ok() && provider(&mirror(cache)).exists(),
    install,
    start,
    stop_signals: &[],
};

/// Whichever is there and new enough, and its version.
fn program(cache: &Cache) -> Result<(PathBuf, String)> {
    let candidates = [in_path("terraform"), in_path("tofu"), Some(tofu(cache))];
    let mut known = candidates.into_iter().flatten().filter_map(|program| {
        let version = version(&program).ok()?;
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        let release = (numbers.next()?, numbers.next()?);
        (release >= TERRAFORM_MIN).then_some((program, version))
    });
    known.next().context("neither Terraform 1.8 nor OpenTofu is there")
}

fn version(program: &Path) -> Result<String> {
    let mut command = Command::new(program);
    // Some machines name a file that is not there.
    command.env_remove("TF_CLI_CONFIG_FILE").env("CHECKPOINT_DISABLE", "1");
    let said = command.args(["version", "-json"]).output()?;
    let said: Value = serde_json::from_slice(&said.stdout)?;
    Ok(said["terraform_version"].as_str().context("it does not say its version")?.into())
}

fn tofu(cache: &Cache) -> PathBuf {
    cache.dir("tofu", TOFU).join("tofu")
}

/// A directory of providers, laid out as both programs look for them.
fn mirror(cache: &Cache) -> PathBuf {
    cache.dir("terraform-provider-things", TERRAFORM_PROVIDER)
}

fn provider(mirror: &Path) -> PathBuf {
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    mirror
        .join("mainstay.test/test/things")
        .join(TERRAFORM_PROVIDER)
        .join(format!("{system}_{machine}"))
        .join(PROVIDER)
}

const PROVIDER: &str = "terraform-provider-things";

const SOURCE: [(&str, &str); 3] = [
    ("main.go", include_str!("../../assets/terraform/main.go")),
    ("go.mod", include_str!("../../assets/terraform/go.mod")),
    ("go.sum", include_str!("../../assets/terraform/go.sum")),
];

fn install(install: &Install) -> Result<()> {
    if program(install.cache).is_err() {
        install.cache.put("tofu", TOFU, |dir| {
            let source = install.go_source("github.com/opentofu/opentofu", TOFU, dir)?;
            // A release: one for developers warns and asks for more.
            let set = "-X github.com/opentofu/opentofu/version.dev=no";
            let package = "./cmd/tofu";
            let build = Build { name: "tofu", dir: &source, package, tags: "", set };
            install.go_build(dir, build)?;
            Ok(std::fs::remove_dir_all(source)?)
        })?;
    }
    if provider(&mirror(install.cache)).exists() {
        return Ok(());
    }
    install.cache.put("terraform-provider-things", TERRAFORM_PROVIDER, |dir| {
        let source = golang::write(&SOURCE, dir)?;
        let to = provider(dir);
        let to = to.parent().context("it is in a directory")?;
        std::fs::create_dir_all(to)?;
        let build = Build { name: PROVIDER, dir: &source, package: ".", tags: "", set: "" };
        install.go_build(to, build)?;
        Ok(std::fs::remove_dir_all(source)?)
    })
}

fn start(place: &Place) -> Result<()> {
    let (program, version) = program(&place.cache)?;
    let config = place.dir.join("cli.tfrc");
    let mirror = mirror(&place.cache);
    // From there and from nowhere else.
    let providers =
        format!("provider_installation {{\n  filesystem_mirror {{ path = {mirror:?} }}\n}}\n");
    std::fs::write(&config, format!("disable_checkpoint = true\n{providers}"))?;
    place.tell("version", version)?;
    place.tell("cli_config", config.display())?;
    place.tell("", program.display())
}
