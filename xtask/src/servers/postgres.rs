//! PostgreSQL 15 or newer: a private cluster on a loopback port.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Durability, Running, Server};

pub const SERVER: Server = Server {
    name: "postgres",
    install,
    installed: || binaries().is_some(),
    start,
    // A fast shutdown, then an immediate one: it recovers, and its data goes anyway.
    stop_signals: &["INT", "QUIT"],
};

const VERSION_MIN: u32 = 15;

/// The newest directory that has `initdb`, where packages put it.
fn binaries() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    let roots = ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"];
    let entries = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let version = name.trim_start_matches("postgresql@").parse::<u32>();
        let bin = entry.path().join("bin");
        if let Some(version) = version.ok().filter(|version| *version >= VERSION_MIN)
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

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn install() -> Result<()> {
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "PostgreSQL {VERSION_MIN} or newer is missing (initdb was not found). Install it: \
             `sudo apt-get install postgresql` on Debian and Ubuntu, `brew install postgresql@17` on macOS"
        );
    }
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        let status = command.args(args).env("DEBIAN_FRONTEND", "noninteractive").status();
        status.context("apt-get cannot run").map(|status| status.success())
    };
    let package = ["install", "-y", "-qq", "--no-install-recommends", "postgresql"];
    // The list of packages may be old; ask for a new one only if it is.
    let done = apt(&package)? || (apt(&["update", "-qq"])? && apt(&package)?);
    if !done {
        bail!("apt-get could not install postgresql; see above");
    }
    if binaries().is_none() {
        bail!("the system's PostgreSQL is older than {VERSION_MIN}");
    }
    Ok(())
}

fn start(dir: &Path, port: u16, durability: Durability) -> Result<Running> {
    let bin = binaries().context("PostgreSQL is not installed")?;
    let data = dir.join("data");
    if is_root() {
        // It refuses to run as root; its package has made a user for it.
        run(Command::new("chown").arg("postgres").arg(dir), "chown")?;
    }
    if !data.join("PG_VERSION").exists() {
        let locale = if cfg!(target_os = "linux") { "C.UTF-8" } else { "en_US.UTF-8" };
        let mut initdb = as_postgres(&bin.join("initdb"), dir);
        initdb.arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]);
        run(initdb.arg(format!("--locale={locale}")), "initdb")?;
    }
    let mut options = format!(
        "-p {port} -k {} -c listen_addresses=127.0.0.1 -c max_connections=300",
        dir.display()
    );
    if durability == Durability::None {
        options.push_str(" -c fsync=off -c synchronous_commit=off -c full_page_writes=off");
    }
    let mut pg_ctl = as_postgres(&bin.join("pg_ctl"), dir);
    pg_ctl.arg("-D").arg(&data).arg("-l").arg(dir.join("log")).arg("-o").arg(options);
    // -w: ends when it takes connections.
    run(pg_ctl.args(["-w", "-t", "60", "start"]), "pg_ctl")?;
    let pid_file = std::fs::read_to_string(data.join("postmaster.pid"))?;
    let pid = pid_file.lines().next().context("postmaster.pid is empty")?.trim().parse()?;
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    Ok(Running { pid, env: vec![("MAINSTAY_TEST_POSTGRES".into(), url)] })
}

fn as_postgres(program: &Path, dir: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    // Where its user may be; the checkout may be closed to it.
    command.current_dir(dir);
    command
}

/// Runs to the end; what it says is only of interest if it fails. Its output goes to a file, as
/// a server that it leaves behind would hold a pipe open.
fn run(command: &mut Command, name: &str) -> Result<()> {
    let path = std::env::temp_dir().join(format!("mainstay-{name}-{}.log", std::process::id()));
    let file = std::fs::File::create(&path)?;
    let status = command.stdout(file.try_clone()?).stderr(file).status();
    let said = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::remove_file(&path)?;
    if !status.with_context(|| format!("{name} cannot run"))?.success() {
        bail!("{name} failed:\n{said}");
    }
    Ok(())
}
