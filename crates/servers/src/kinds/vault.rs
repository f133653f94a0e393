//! Vault: one server with its data on disk, initialised and unsealed.

use std::path::PathBuf;

use anyhow::Result;

use crate::install::{CURL, GO};
use crate::versions::VAULT;
use crate::{Build, Cache, Install, Place, Server};

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

fn start(_place: &Place) -> Result<()> {
    anyhow::bail!("not yet")
}
