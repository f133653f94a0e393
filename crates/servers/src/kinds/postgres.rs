//! PostgreSQL 15 or newer: a cluster of its own, open to `postgres` without a password.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::versions::POSTGRES_MIN;
use crate::{Install, Place, Server};

pub const SERVER: Server = Server {
    name: "postgres",
    version: "15 or newer",
    cost: "apt package, under a minute",
    needs: &[],
    installed: |_| binaries().is_some(),
    install,
    start,
    // A fast shutdown, then an immediate one: it recovers.
    stop_signals: &["INT", "QUIT"],
};

/// The newest directory that has `initdb`, where packages put it.
fn binaries() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    let roots = ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"];
    let entries = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let version = name.trim_start_matches("postgresql@").parse::<u32>();
        let bin = entry.path().join("bin");
        if let Some(version) = version.ok().filter(|version| *version >= POSTGRES_MIN)
            && bin.join("initdb").exists()
        {
            found.push((version, bin));
        }
    }
    found.sort();
    let asked = Command::new("pg_config").arg("--bindir").output().ok();
    let asked = || Some(PathBuf::from(String::from_utf8(asked?.stdout).ok()?.trim()));
    found.pop().map(|(_, bin)| bin).or_else(|| asked().filter(|bin| bin.join("initdb").exists()))
}

fn install(install: &Install) -> Result<()> {
    install.apt(&["postgresql"], &["initdb of PostgreSQL 15 or newer"])?;
    if binaries().is_none() {
        bail!("the system's PostgreSQL is older than {POSTGRES_MIN}");
    }
    Ok(())
}

fn start(place: &Place) -> Result<()> {
    let bin = binaries().context("PostgreSQL is not installed")?;
    place.belong_to("postgres")?;
    let (data, port) = (place.dir.join("data"), place.port("main")?);
    if !data.join("PG_VERSION").exists() {
        let locale = if cfg!(target_os = "linux") { "C.UTF-8" } else { "en_US.UTF-8" };
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]);
        place.run(initdb.arg(format!("--locale={locale}")).arg("-D").arg(&data))?;
    }
    // After a kill it refuses to start until the last of its children has noticed.
    let begun = Instant::now();
    while let Err(error) = launch(place, &bin, port) {
        let lingers = format!("{error:#}").contains("shared memory block");
        if !lingers || begun.elapsed() > Duration::from_secs(30) {
            return Err(error);
        }
        place.kill()?;
        std::fs::remove_file(place.dir.join("log/postgres.log"))?;
    }
    place.tell("", format!("postgres://postgres@127.0.0.1:{port}/postgres"))
}

fn launch(place: &Place, bin: &Path, port: u16) -> Result<()> {
    let mut postgres = Command::new(bin.join("postgres"));
    postgres.arg("-D").arg(place.dir.join("data")).arg("-k").arg(&place.dir);
    let mut settings = vec!["listen_addresses=127.0.0.1", "max_connections=300"];
    if !place.durable {
        // Still written before it is acknowledged: a killed server has lost nothing.
        settings.extend(["fsync=off", "full_page_writes=off"]);
    }
    for setting in settings {
        postgres.args(["-c", setting]);
    }
    place.spawn("postgres", postgres.args(["-p", &port.to_string()]))?;
    place.ready("it takes connections", || {
        let mut psql = Command::new(bin.join("psql"));
        psql.args(["-h", "127.0.0.1", "-U", "postgres", "-Atc", "SELECT 1"]);
        place.run(psql.args(["-p", &port.to_string()])).map(drop)
    })
}
