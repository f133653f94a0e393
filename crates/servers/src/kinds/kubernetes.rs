//! A Kubernetes control plane with nodes that are only played: objects, controllers and
//! schedules are real, containers are not.

use anyhow::Result;

use crate::install::{CURL, GO};
use crate::versions::KUBERNETES;
use crate::{Build, Cache, Install, Place, Server};

pub const SERVER: Server = Server {
    name: "kubernetes",
    version: KUBERNETES,
    cost: "built with Go, 10 to 14 minutes of CPU",
    needs: &[GO, CURL],
    installed: |cache| binary(cache).exists(),
    install,
    start,
    stop_signals: &["TERM"],
};

fn binary(cache: &Cache) -> std::path::PathBuf {
    cache.dir("kubernetes", KUBERNETES).join("kubernetes")
}

fn install(install: &Install) -> Result<()> {
    install.cache.put("kubernetes", KUBERNETES, |dir| {
        let source = dir.join("source");
        std::fs::create_dir_all(&source)?;
        std::fs::write(source.join("main.go"), include_str!("../../assets/kubernetes/main.go"))?;
        std::fs::write(source.join("go.mod"), include_str!("../../assets/kubernetes/go.mod"))?;
        std::fs::write(source.join("go.sum"), include_str!("../../assets/kubernetes/go.sum"))?;
        let build =
            Build { name: "kubernetes", dir: &source, package: ".", tags: "", set: &version() };
        install.go_build(dir, build)?;
        Ok(std::fs::remove_dir_all(source)?)
    })
}

/// Without these it calls itself v0.0.0-master, which clients do not understand.
fn version() -> String {
    let mut numbers = KUBERNETES.split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let facts = [
        ("gitMajor", major.into()),
        ("gitMinor", minor.into()),
        ("gitVersion", format!("v{KUBERNETES}")),
        ("gitTreeState", "clean".into()),
        ("gitCommit", "0".repeat(40)),
        ("buildDate", "2026-01-01T00:00:00Z".into()),
    ];
    let mut set = Vec::new();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        set.extend(facts.iter().map(|(name, value)| format!("-X {package}.{name}={value}")));
    }
    set.join(" ")
}

fn start(_place: &Place) -> Result<()> {
    anyhow::bail!("not yet")
}
