//! Vault: one server with its data on disk, initialised and unsealed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::install::{CURL, GO};
use crate::versions::VAULT;
use crate::{Build, Cache, Install, Place, Server, wire};

pub const SERVER: Server = Server {
    name: "vault",
    version: VAULT,
    cost: "built with Go, about 11 minutes of CPU",
    needs: &[GO, CURL],
    installed: |cache| binary(cache).exists(),
    install,
    start,
    stop_signals: &["TERM"],
};

fn binary(cache: &Cache) -> PathBuf {
    cache.dir("vault", VAULT).join("vault")
}

fn install(install: &Install) -> Result<()> {
    install.cache.put("vault", VAULT, |dir| {
        let source = install.go_source("github.com/hashicorp/vault", VAULT, dir)?;
        let mut edit = install.go(&source);
        edit.args(["mod", "edit"]);
        // Modules of their own below it, which the proxy's copy does not have.
        let parts = ["api", "api/auth/approle", "api/auth/kubernetes", "api/auth/userpass", "sdk"];
        for part in parts {
            edit.arg(format!("-dropreplace=github.com/hashicorp/vault/{part}"));
        }
        install.run("take its modules from the proxy", &mut edit)?;
        // Without the plugins for other people's clouds.
        let build = Build { name: "vault", dir: &source, package: ".", tags: "minimal", set: "" };
        install.go_build(dir, build)?;
        Ok(std::fs::remove_dir_all(source)?)
    })
}

fn start(place: &Place) -> Result<()> {
    let url = format!("http://127.0.0.1:{}", place.port("http")?);
    let config = place.dir.join("vault.hcl");
    std::fs::write(
        &config,
        format!(
            r#"
            storage "raft" {{
              path = {data:?}
              node_id = "test"
              // It has no others to wait for.
              performance_multiplier = 1
            }}
            listener "tcp" {{
              address = "{address}"
              cluster_address = "127.0.0.1:{cluster}"
              tls_disable = true
            }}
            api_addr = "{url}"
            cluster_addr = "https://127.0.0.1:{cluster}"
            disable_mlock = true
            "#,
            data = place.sub("data")?,
            cluster = place.port("cluster")?,
            address = url.trim_start_matches("http://"),
        ),
    )?;
    let mut vault = Command::new(binary(&place.cache));
    vault.args(["server", "-log-level=warn"]).arg("-config").arg(config);
    place.spawn("vault", vault.env("HOME", &place.dir))?;
    let state = place.ready("it answers", || call(&url, "GET", "sys/init", "", &json!(null)))?;
    let path = place.dir.join("keys.json");
    if state["initialized"] == false {
        let one = json!({"secret_shares": 1, "secret_threshold": 1});
        let keys = call(&url, "PUT", "sys/init", "", &one)?;
        std::fs::write(&path, keys.to_string())?;
    }
    let keys: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let token = keys["root_token"].as_str().context("there is no root token")?;
    call(&url, "PUT", "sys/unseal", "", &json!({"key": keys["keys"][0]}))?;
    let methods =
        place.ready("it is unsealed", || call(&url, "GET", "sys/auth", token, &json!(null)))?;
    if methods["approle/"].is_null() {
        call(&url, "POST", "sys/auth/approle", token, &json!({"type": "approle"}))?;
    }
    place.tell("token", token)?;
    place.tell("", url)
}

/// As this token, if there is one. Nothing is answered as null.
fn call(url: &str, method: &str, path: &str, token: &str, body: &Value) -> Result<Value> {
    let (url, token) = (format!("{url}/v1/{path}"), format!("X-Vault-Token: {token}"));
    let body = body.to_string();
    let mut args = vec!["--request", method, "--header", &token];
    if body != "null" {
        args.extend(["--data", &body]);
    }
    args.push(&url);
    let answer = wire::curl(&args)?;
    if answer.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&answer)?) }
}
