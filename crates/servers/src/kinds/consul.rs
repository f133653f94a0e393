//! Consul: one server with its data on disk, closed to all who have no token.

use std::path::PathBuf;

use anyhow::Result;

use crate::install::{CURL, GO};
use crate::versions::{CONSUL, CONSUL_API};
use crate::{Build, Cache, Install, Place, Server};

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

fn start(_place: &Place) -> Result<()> {
    anyhow::bail!("not yet")
}
