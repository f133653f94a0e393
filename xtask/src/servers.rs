//! `cargo xtask servers`, and the set of servers that tests and benchmarks run with. The servers
//! themselves are in `crates/servers`.
//!
//! A guard process holds the other end of a pipe: when this program is gone, however it went, the
//! guard ends its run. A run whose guard was killed too is ended by the next.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use servers::{Cache, Place, Run, Server, find, install, kinds};

#[derive(Subcommand)]
pub enum ServersVerb {
    /// Install what is missing, once
    Install {
        /// Only these [default: all]
        names: Vec<String>,
    },
    /// Start them and leave them running
    Up {
        /// Only these [default: all]
        names: Vec<String>,
    },
    /// Stop what `up` started
    Down,
    /// Show what is installed and what runs
    Status,
    /// Print `export` lines for a shell: eval "$(cargo xtask servers env)"
    Env,
    /// Print the end of a server's logs
    Logs {
        name: String,
        /// How many lines of each
        #[arg(long, default_value_t = 100)]
        lines: usize,
    },
    /// Start them, run a command with their addresses in its environment, and stop them
    Run {
        /// Only these, as in `kafka,postgres` [default: all]
        #[arg(long, value_delimiter = ',', value_name = "SERVERS")]
        only: Vec<String>,
        /// As in `-- cargo test -p kernel`
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Wait until the starter is gone, then stop what it started
    #[command(hide = true)]
    Guard { run: PathBuf },
}

impl ServersVerb {
    pub fn run(self) -> Result<()> {
        let cache = Cache::of_user()?;
        let kept = Run::kept(&cache);
        match self {
            ServersVerb::Install { names } => install(&cache, &chosen(&names)?)?,
            ServersVerb::Up { names } => {
                let servers = chosen(&names)?;
                Run::clean_up(&cache)?;
                let mut up = HashSet::new();
                for place in kept.places()? {
                    if place.is_running() {
                        up.insert(place.server.name);
                    } else {
                        kept.leave(&place)?;
                    }
                }
                install(&cache, &servers)?;
                let down: Vec<_> =
                    servers.into_iter().filter(|server| !up.contains(server.name)).collect();
                start(&kept, &down, false)?;
                println!("{}", exports(&kept)?);
            }
            ServersVerb::Down => {
                Run::clean_up(&cache)?;
                kept.end()?;
            }
            ServersVerb::Status => status(&cache, &kept)?,
            ServersVerb::Env => println!("{}", exports(&kept)?),
            ServersVerb::Logs { name, lines } => {
                let places = kept.places()?;
                let name = find(&name)?.name;
                let place = places.iter().find(|place| place.server.name == name);
                let place = place.with_context(|| {
                    format!("{name} does not run; start it with `cargo xtask servers up {name}`")
                })?;
                print!("{}", place.logs(lines)?);
            }
            ServersVerb::Run { only, command } => {
                let fleet = Fleet::start(&chosen(&only)?, false)?;
                let (program, args) = command.split_first().context("no command")?;
                let child = Command::new(program).args(args).envs(fleet.env()?).spawn();
                let mut child = child.with_context(|| format!("{program} cannot run"))?;
                fleet.used_by(child.id())?;
                let status = child.wait()?;
                fleet.stop()?;
                if !status.success() {
                    bail!("{program} failed ({status})");
                }
            }
            ServersVerb::Guard { run } => {
                // Returns when the other end of the pipe is closed, by intent or by death.
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
                Run::at(&cache, &run).end()?;
            }
        }
        Ok(())
    }
}

/// Those that are named, or all.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Server>> {
    if names.is_empty() {
        return Ok(kinds::ALL.to_vec());
    }
    names.iter().map(|name| find(name)).collect()
}

/// A set of servers, for as long as this value lives.
pub struct Fleet {
    run: Run,
    guard: Child,
}

impl Fleet {
    pub fn start(servers: &[&'static Server], durable: bool) -> Result<Fleet> {
        let cache = Cache::of_user()?;
        Run::clean_up(&cache)?;
        install(&cache, servers)?;
        let run = Run::owned(&cache)?;
        // A build may have put another file in the place of this program's.
        let own = Path::new("/proc/self/exe");
        let own = if own.exists() { own.to_owned() } else { std::env::current_exe()? };
        let guard = Command::new(own)
            .args(["servers", "guard"])
            .arg(run.dir())
            .stdin(Stdio::piped())
            // A group of its own, so that Ctrl-C in the terminal does not reach it.
            .process_group(0)
            .spawn()
            .context("the guard process cannot start")?;
        let fleet = Fleet { run, guard };
        start(&fleet.run, servers, durable)?;
        Ok(fleet)
    }

    /// Where the servers are, and whose run the tests take part in.
    pub fn env(&self) -> Result<Vec<(String, String)>> {
        let mut env = env(&self.run)?;
        env.push(self.run.env());
        Ok(env)
    }

    /// A process that must not outlive this one.
    pub fn used_by(&self, pid: u32) -> Result<()> {
        self.run.used_by(pid)
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

/// All at once; the first that fails is what is reported.
fn start(run: &Run, servers: &[&'static Server], durable: bool) -> Result<()> {
    let one = |server: &'static Server| -> Result<()> {
        let begun = Instant::now();
        let place = run.place(server, durable, BTreeMap::new())?;
        place.start()?;
        let (took, dir) = (begun.elapsed().as_secs_f64(), place.dir.display());
        eprintln!("  {:12} answers after {took:4.1} s, data in {dir}", server.name);
        Ok(())
    };
    std::thread::scope(|scope| {
        let starting: Vec<_> =
            servers.iter().map(|server| scope.spawn(move || one(server))).collect();
        let mut started = starting.into_iter().map(|one| one.join().expect("no panic"));
        started.find(Result::is_err).unwrap_or(Ok(()))
    })
}

fn env(run: &Run) -> Result<Vec<(String, String)>> {
    let mut env = Vec::new();
    for place in run.places()? {
        env.extend(place.connection_info()?.env(place.server.name));
    }
    Ok(env)
}

fn exports(run: &Run) -> Result<String> {
    let env = env(run)?;
    if env.is_empty() {
        bail!("no servers run; start them with `cargo xtask servers up`");
    }
    let lines: Vec<String> =
        env.iter().map(|(name, value)| format!("export {name}='{value}'")).collect();
    Ok(lines.join("\n"))
}

fn status(cache: &Cache, kept: &Run) -> Result<()> {
    let places = kept.places()?;
    for server in kinds::ALL {
        let runs = |place: &&Place| place.server.name == server.name && place.is_running();
        let runs = match places.iter().find(runs) {
            Some(place) => format!("runs at {}", place.connection_info()?.get("")?),
            None => "not running".into(),
        };
        let installed = if (server.installed)(cache) { "installed" } else { "not installed" };
        println!("{:12} {:12} {installed:13} {runs}", server.name, server.version);
    }
    Ok(())
}
