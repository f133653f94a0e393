//! Consul: one server with its data on disk, closed to all who have no token.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::install::{CURL, GO};
use crate::versions::{CONSUL, CONSUL_API};
use crate::{Build, Cache, Install, Place, Server, wire};

pub const SERVER: Server = Server {
    name: "consul",
    version: CONSUL,
    cost: "built with Go, up to 13 minutes of CPU",
    needs: &[GO, CURL],
    installed: |cache| binary(cache).exists(),
    install,
    start,
    stop_signals: &["TERM"],
};

fn binary(cache: &Cache) -> PathBuf {
    cache.dir("consul", CONSUL).join("consul")
}

fn install(install: &Install) -> Result<()> {
    install.cache.put("consul", CONSUL, |dir| {
        let source = install.go_source("github.com/hashicorp/consul", CONSUL, dir)?;
        let mut edit = install.go(&source);
        edit.args(["mod", "edit"]);
        // Modules of their own below it, which the proxy's copy does not have.
        for part in ["api", "envoyextensions", "proto-public", "sdk", "troubleshoot"] {
            edit.arg(format!("-dropreplace=github.com/hashicorp/consul/{part}"));
        }
        edit.arg(format!("-require=github.com/hashicorp/consul/api@v{CONSUL_API}"));
        install.run("take its modules from the proxy", &mut edit)?;
        let build = Build { name: "consul", dir: &source, package: ".", tags: "", set: "" };
        install.go_build(dir, build)?;
        Ok(std::fs::remove_dir_all(source)?)
    })
}

/// Who holds it may do everything. Nobody but this machine can reach the server.
const TOKEN: &str = "6d61696e-7374-6179-2d74-657374730000";

fn start(place: &Place) -> Result<()> {
    let http = place.port("http")?;
    let config = place.dir.join("consul.hcl");
    std::fs::write(
        &config,
        format!(
            r#"
            server = true
            bootstrap_expect = 1
            node_name = "test"
            data_dir = {data:?}
            bind_addr = "127.0.0.1"
            client_addr = "127.0.0.1"
            ports {{
              http = {http}
              server = {server}
              serf_lan = {gossip}
              serf_wan = -1
              grpc = -1
              grpc_tls = -1
              dns = -1
            }}
            acl {{
              enabled = true
              default_policy = "deny"
              tokens {{ initial_management = "{TOKEN}", agent = "{TOKEN}" }}
            }}
            // It has no others to wait for.
            performance {{ raft_multiplier = 1 }}
            limits {{ http_max_conns_per_client = 2000 }}
            disable_update_check = true
            "#,
            data = place.dir.join("data"),
            server = place.port("server")?,
            gossip = place.port("gossip")?,
        ),
    )?;
    let mut consul = Command::new(binary(&place.cache));
    consul.args(["agent", "-log-level=warn"]).arg("-config-file").arg(config);
    place.spawn("consul", consul.env("HOME", &place.dir))?;
    let url = format!("http://127.0.0.1:{http}");
    place.ready("it takes a write", || {
        let token = format!("X-Consul-Token: {TOKEN}");
        let key = format!("{url}/v1/kv/ready");
        wire::curl(&["--request", "PUT", "--data", "yes", "--header", &token, &key])
    })?;
    place.tell("token", TOKEN)?;
    place.tell("", url)
}
