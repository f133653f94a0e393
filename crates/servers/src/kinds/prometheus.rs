//! Prometheus, open for remote writes also of what is long past, with the recording rules that the
//! advisor reads. Scrapes nobody but itself.
//!
//! Option `blocks`: a directory of blocks that it has from its first start on, as `promtool tsdb
//! create-blocks-from` makes them. Option `past`: it measures nothing itself, so that the past can be
//! written in the order of time, which takes a tenth of what late samples take.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::{CURL, in_path};
use crate::wire::curl;
use crate::{Place, Server, versions};

pub const SERVER: Server = Server {
    name: "prometheus",
    version: versions::PROMETHEUS,
    cost: "apt package, under a minute",
    needs: &[CURL],
    installed: |_| in_path("prometheus").is_some() && in_path("promtool").is_some(),
    install: |install| install.apt(&["prometheus"], &["prometheus", "promtool"]),
    start,
    stop_signals: &["TERM"],
};

const RULES: &str = include_str!("../../assets/prometheus/rules.yml");

fn start(place: &Place) -> Result<()> {
    let port = place.port("main")?;
    // Sub-queries without a step follow the evaluation interval: a short one makes them slow.
    let measuring = format!(
        "rule_files: [rules.yml]
scrape_configs:
- job_name: prometheus
  static_configs: [{{targets: [\"127.0.0.1:{port}\"]}}]
"
    );
    let measuring = if place.option("past").is_some() { "" } else { &measuring };
    let config = format!(
        "global: {{scrape_interval: 15s, evaluation_interval: 30s}}
storage: {{tsdb: {{out_of_order_time_window: 30d}}}}
{measuring}"
    );
    std::fs::write(place.dir.join("prometheus.yml"), config)?;
    std::fs::write(place.dir.join("rules.yml"), RULES)?;
    let data = place.dir.join("data");
    if let Some(blocks) = place.option("blocks").filter(|_| !data.exists()) {
        copy(Path::new(blocks), &data).with_context(|| format!("{blocks} cannot be copied"))?;
    }
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=data")
        .arg("--storage.tsdb.retention.time=90d")
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--web.enable-remote-write-receiver", "--web.enable-lifecycle"])
        .arg("--web.enable-admin-api");
    let process = place.spawn("prometheus", &mut prometheus)?;
    let address = format!("http://127.0.0.1:{port}");
    let query = format!("{address}/api/v1/query?query=vector(1)");
    place.ready("it answers queries", || curl(&[&query]).map(drop))?;
    place.tell("", address)?;
    place.tell("pid", process.pid())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().context("it has a name")?);
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            std::fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
