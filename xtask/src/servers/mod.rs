//! The real servers of the tests: installed if missing, started on free loopback ports, and
//! stopped again whatever happens. One small file per server; [`SERVERS`] lists them.
//!
//! Each run has a directory of records outside the checkout. A guard process holds the other end
//! of a pipe: when this program is gone, however it went, the guard stops what was recorded. A
//! run whose guard was killed too is cleaned up by the next.

mod postgres;
mod process;
mod record;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use process::Process;
use record::Record;

/// A kind of server. To add one: a file beside this, and a line in [`SERVERS`].
pub struct Server {
    pub name: &'static str,
    /// Nothing if it is installed already.
    pub install: fn() -> Result<()>,
    pub installed: fn() -> bool,
    /// Starts one and waits until it answers. Everything that it writes is below `dir`.
    pub start: fn(dir: &Path, port: u16, durability: Durability) -> Result<Running>,
    /// How it is asked to stop, politely first.
    pub stop_signals: &'static [&'static str],
}

pub const SERVERS: &[Server] = &[postgres::SERVER];

pub struct Running {
    pub pid: u32,
    /// What the tests are told, as `MAINSTAY_TEST_…`.
    pub env: Vec<(String, String)>,
}

/// Whether data must survive a loss of power. Tests do without, which is much faster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    None,
    Full,
}

#[derive(Subcommand)]
pub enum ServersVerb {
    /// Start them and leave them running
    Up,
    /// Stop what `up` started
    Down,
    /// Show what is installed and what runs
    Status,
    /// Print `export` lines for a shell: eval "$(cargo xtask servers env)"
    Env,
    /// Install what is missing
    Install,
    /// Wait until the starter is gone, then stop what it started
    #[command(hide = true)]
    Guard { run: PathBuf },
}

/// The run that `up` starts and `down` ends; it belongs to no process.
const KEPT: &str = "up";

impl ServersVerb {
    pub fn run(self) -> Result<()> {
        let kept = runs_dir()?.join(KEPT);
        match self {
            ServersVerb::Up => {
                clean_up()?;
                if kept.exists() {
                    stop_all(&kept)?;
                }
                install_all()?;
                start_all(&kept, Durability::None)?;
                println!("{}", exports(&kept)?);
            }
            ServersVerb::Down => {
                clean_up()?;
                stop_all(&kept)?;
            }
            ServersVerb::Status => status(&kept)?,
            ServersVerb::Env => println!("{}", exports(&kept)?),
            ServersVerb::Install => install_all()?,
            ServersVerb::Guard { run } => {
                // Returns when the other end of the pipe is closed, by intent or by death.
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
                stop_all(&run)?;
            }
        }
        Ok(())
    }
}

/// All servers, for as long as this value lives.
pub struct Fleet {
    run: PathBuf,
    guard: Child,
}

impl Fleet {
    pub fn start(durability: Durability) -> Result<Fleet> {
        clean_up()?;
        install_all()?;
        let run = runs_dir()?.join(std::process::id().to_string());
        std::fs::create_dir_all(&run)?;
        std::fs::write(run.join(OWNER), Process::current()?.to_string())?;
        let guard = Command::new(std::env::current_exe()?)
            .args(["servers", "guard"])
            .arg(&run)
            .stdin(Stdio::piped())
            // A group of its own, so that Ctrl-C in the terminal does not reach it.
            .process_group(0)
            .spawn()
            .context("the guard process cannot start")?;
        let fleet = Fleet { run, guard };
        start_all(&fleet.run, durability)?;
        Ok(fleet)
    }

    pub fn env(&self) -> Vec<(String, String)> {
        env(&self.run).unwrap_or_default()
    }

    /// Stops them; dropping does as well, but cannot say what went wrong.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        drop(self.guard.stdin.take());
        let status = self.guard.wait().context("the guard process is lost")?;
        if !status.success() {
            bail!("not every server could be stopped; see above");
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("error: {error:#}");
        }
    }
}

/// In a run's directory: whose it is.
const OWNER: &str = "owner";

fn runs_dir() -> Result<PathBuf> {
    Ok(cache_dir()?.join("run"))
}

/// Outside the checkout, so that a new clone finds what an old one built.
pub fn cache_dir() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from);
    let usual = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set("MAINSTAY_SERVERS_DIR")
        .or_else(|| Some(usual()?.join("mainstay")))
        .context("set MAINSTAY_SERVERS_DIR to a directory for the test servers (HOME is not set)")
}

fn install_all() -> Result<()> {
    for server in SERVERS {
        if !(server.installed)() {
            eprintln!("installing {}", server.name);
            (server.install)()?;
        }
    }
    Ok(())
}

fn start_all(run: &Path, durability: Durability) -> Result<()> {
    std::fs::create_dir_all(run)?;
    for server in SERVERS {
        let name = format!("mainstay-{}-{}", server.name, std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)?;
        let mut record = Record::new(server.name, &dir);
        // Before it starts, so that even a half-started one is found.
        record.write(run)?;
        let running = start(server, &dir, durability)?;
        record.process = Some(Process::of(running.pid)?);
        record.env = running.env;
        record.write(run)?;
        eprintln!("{} runs (pid {}, data in {})", server.name, running.pid, dir.display());
    }
    Ok(())
}

/// A port that was free a moment ago may be taken by now: another try takes another.
fn start(server: &Server, dir: &Path, durability: Durability) -> Result<Running> {
    let once = || (server.start)(dir, free_port()?, durability);
    once().or_else(|_| once()).with_context(|| format!("{} does not start", server.name))
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Stops what a run's records name, and forgets the run.
fn stop_all(run: &Path) -> Result<()> {
    for record in Record::all(run)? {
        if let Some(process) = &record.process {
            let server = SERVERS.iter().find(|server| server.name == record.server);
            process.stop(server.map_or(&["TERM", "KILL"], |server| server.stop_signals))?;
        }
        record.remove(run)?;
    }
    if run.exists() {
        std::fs::remove_dir_all(run)?;
    }
    Ok(())
}

/// Ends the runs whose owner is gone.
fn clean_up() -> Result<()> {
    let Ok(runs) = std::fs::read_dir(runs_dir()?) else { return Ok(()) };
    for run in runs {
        let run = run?.path();
        let owner = std::fs::read_to_string(run.join(OWNER)).unwrap_or_default();
        let kept = run.file_name().is_some_and(|name| name == KEPT);
        if !kept && !owner.parse::<Process>().is_ok_and(|owner| owner.is_alive()) {
            eprintln!("cleaning up after a run that ended early");
            stop_all(&run)?;
        }
    }
    Ok(())
}

fn env(run: &Path) -> Result<Vec<(String, String)>> {
    Ok(Record::all(run)?.into_iter().flat_map(|record| record.env).collect())
}

fn exports(run: &Path) -> Result<String> {
    let env = env(run)?;
    if env.is_empty() {
        bail!("no servers run; start them with `cargo xtask servers up`");
    }
    let lines: Vec<String> =
        env.iter().map(|(name, value)| format!("export {name}='{value}'")).collect();
    Ok(lines.join("\n"))
}

fn status(kept: &Path) -> Result<()> {
    let records = Record::all(kept)?;
    for server in SERVERS {
        let alive = |record: &&Record| {
            record.server == server.name && record.process.as_ref().is_some_and(Process::is_alive)
        };
        let installed = if (server.installed)() { "installed" } else { "not installed" };
        let runs = records.iter().find(alive).map_or("not running".into(), |record| {
            let env = record.env.iter().map(|(name, value)| format!("{name}={value}"));
            format!("runs: {}", env.collect::<Vec<_>>().join(" "))
        });
        println!("{:12} {installed}, {runs}", server.name);
    }
    Ok(())
}
