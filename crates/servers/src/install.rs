//! Installing a server: says what it does, shows that it goes on, and prints the end of the log
//! when it fails.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Cache, Server};

/// A program that must be there before an installation begins.
pub struct Need {
    pub command: &'static str,
    /// How people get it.
    pub get: &'static str,
}

pub const GO: Need = Need {
    command: "go",
    get: "Go 1.26 or newer: `apt-get install golang-go`, `brew install go`, or from the Go project",
};
pub const JAVA: Need = Need {
    command: "java",
    get: "Java 17 or newer: `apt-get install openjdk-17-jre-headless`, `brew install openjdk@17`",
};
pub const MAVEN: Need =
    Need { command: "mvn", get: "Maven: `apt-get install maven`, `brew install maven`" };
pub const PYTHON: Need = Need {
    command: "python3",
    get: "Python 3.10 or newer with venv: `apt-get install python3-venv`, `brew install python`",
};
pub const CURL: Need = Need { command: "curl", get: "curl: `apt-get install curl`" };

/// Installs what is missing of these, one after the other. Everything that any of them needs is
/// looked for before the first begins.
pub fn install(cache: &Cache, servers: &[&'static Server]) -> Result<()> {
    let missing = || servers.iter().filter(|server| !(server.installed)(cache));
    if missing().next().is_none() {
        return Ok(());
    }
    let _turn = cache.lock()?;
    // Again: another one may have done it while this one waited.
    let missing: Vec<&&Server> = missing().collect();
    let mut lacking: Vec<String> = Vec::new();
    for server in &missing {
        for need in server.needs.iter().filter(|need| in_path(need.command).is_none()) {
            lacking.push(format!("{} needs `{}`: {}", server.name, need.command, need.get));
        }
    }
    if !lacking.is_empty() {
        bail!("not everything that is needed is there:\n  {}", lacking.join("\n  "));
    }
    for server in &missing {
        eprintln!("to install: {} {}: {}", server.name, server.version, server.cost);
    }
    for server in missing {
        let begun = Instant::now();
        let install = Install::new(cache, server.name)?;
        (server.install)(&install).with_context(|| format!("{} is not installed", server.name))?;
        if !(server.installed)(cache) {
            bail!("{} was installed, but is not found afterwards", server.name);
        }
        eprintln!("{} is installed ({:.0} s)", server.name, begun.elapsed().as_secs_f64());
    }
    // More than ten gigabytes, which only an installation that was interrupted comes back to.
    let go = go_caches(cache);
    if go.exists() {
        std::fs::remove_dir_all(&go).with_context(|| format!("{} stays", go.display()))?;
    }
    Ok(())
}

pub fn go_caches(cache: &Cache) -> PathBuf {
    cache.root().join("go")
}

/// Where a program is, as a shell would find it.
pub fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// One installation.
pub struct Install<'a> {
    pub cache: &'a Cache,
    name: &'static str,
    log: PathBuf,
}

impl<'a> Install<'a> {
    fn new(cache: &'a Cache, name: &'static str) -> Result<Install<'a>> {
        let log = cache.root().join("logs").join(name).with_extension("log");
        std::fs::create_dir_all(cache.root().join("logs"))?;
        File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
        Ok(Install { cache, name, log })
    }

    /// Runs a step to its end. What it prints goes to the log, and to people only if it fails.
    pub fn run(&self, what: &str, command: &mut Command) -> Result<()> {
        let log = File::options().append(true).open(&self.log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("{program} cannot run"))?;
        let mut progress = Progress::begin(format!("{}: {what}", self.name));
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            progress.tick();
            std::thread::sleep(Duration::from_millis(100));
        };
        progress.end();
        if !status.success() {
            let (log, end) = (self.log.display(), end_of(&self.log, 30));
            bail!("{what} failed ({status}); the end of {log}:\n{end}");
        }
        Ok(())
    }

    /// Debian's packages, if this is a Debian and we may. `looked_for` are the commands that would
    /// do as well, however they got there.
    pub fn apt(&self, packages: &[&str], looked_for: &[&str]) -> Result<()> {
        let all = packages.join(" ");
        if !is_root() || in_path("apt-get").is_none() {
            bail!(
                "found none of {}; install it with your package manager (on Debian and Ubuntu: \
                 `sudo apt-get install {all}`), or run this as root where apt-get is",
                looked_for.join(", ")
            );
        }
        let _quiet = NoServices::at(Path::new("/usr/sbin/policy-rc.d"))?;
        let apt = |what: &str, args: &[&str]| {
            let mut apt = Command::new("apt-get");
            // Another one may hold its lock for a while.
            apt.args(["-o", "DPkg::Lock::Timeout=300", "-q", "-y"]).args(args);
            apt.env("DEBIAN_FRONTEND", "noninteractive");
            self.run(what, &mut apt)
        };
        let mut install = vec!["install", "--no-install-recommends"];
        install.extend(packages);
        // The list of packages may be old or empty; a new one is asked for only if it is.
        apt(&format!("apt-get install {all}"), &install).or_else(|_| {
            apt("apt-get update", &["update"])?;
            apt(&format!("apt-get install {all}"), &install)
        })
    }

    /// Go, with its caches next to the build: an interrupted build continues.
    pub fn go(&self, dir: &Path) -> Command {
        let mut go = Command::new("go");
        let cache = go_caches(self.cache);
        go.current_dir(dir)
            .env("GOMODCACHE", cache.join("mod"))
            .env("GOCACHE", cache.join("build"));
        go.env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-modcacherw -buildvcs=false")
            .env("GOTOOLCHAIN", "local");
        go.env("GOWORK", "off");
        go
    }
}

/// While this lives, no package starts its service: some would listen to the whole network. A
/// policy that the machine has already is left alone.
struct NoServices<'a> {
    policy: &'a Path,
}

/// What Debian asks whether a service may start; 101 is no.
const POLICY: &str =
    "#!/bin/sh\n# For an installation of test servers, which are not services\nexit 101\n";

impl<'a> NoServices<'a> {
    fn at(policy: &'a Path) -> Result<NoServices<'a>> {
        use std::os::unix::fs::PermissionsExt;
        if !policy.exists() {
            std::fs::write(policy, POLICY)
                .and_then(|()| std::fs::set_permissions(policy, PermissionsExt::from_mode(0o755)))
                .with_context(|| format!("{} cannot be written", policy.display()))?;
        }
        Ok(NoServices { policy })
    }
}

impl Drop for NoServices<'_> {
    fn drop(&mut self) {
        // Also one that an interrupted installation left.
        if std::fs::read_to_string(self.policy).is_ok_and(|text| text == POLICY) {
            let _ = std::fs::remove_file(self.policy);
        }
    }
}

/// The last lines of a log.
pub fn end_of(log: &Path, lines: usize) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let skipped = text.lines().count().saturating_sub(lines);
    text.lines().skip(skipped).collect::<Vec<_>>().join("\n")
}

/// Shows that something goes on: a line that counts for a person, a line now and then for a log.
struct Progress {
    what: String,
    begun: Instant,
    shown: Duration,
}

impl Progress {
    fn begin(what: String) -> Progress {
        eprintln!("  {what}");
        Progress { what, begun: Instant::now(), shown: Duration::ZERO }
    }

    fn tick(&mut self) {
        let (took, person) = (self.begun.elapsed(), std::io::stderr().is_terminal());
        let pause = Duration::from_secs(if person { 1 } else { 30 });
        if took < self.shown + pause {
            return;
        }
        self.shown = took;
        let seconds = took.as_secs();
        if person {
            eprint!("\r  {} ({seconds} s)", self.what);
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("  {} ({seconds} s so far)", self.what);
        }
    }

    fn end(&self) {
        if std::io::stderr().is_terminal() && !self.shown.is_zero() {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_shows_the_end_of_what_it_said() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let install = Install::new(&cache, "thing").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "seq 1000; echo no such luck >&2; exit 3"]);
        let error = install.run("counting", &mut command).unwrap_err().to_string();
        assert!(error.starts_with("counting failed (exit status: 3)"), "{error}");
        assert!(error.ends_with("1000\nno such luck"), "{error}");
        assert_eq!(error.lines().count(), 31, "the end only: {error}");
    }

    #[test]
    fn no_service_may_start_for_as_long_as_packages_are_installed() {
        let dir = tempfile::tempdir().unwrap();
        let policy = dir.path().join("policy-rc.d");
        let quiet = NoServices::at(&policy).unwrap();
        let asked = Command::new(&policy).args(["rabbitmq-server", "start"]).status().unwrap();
        assert_eq!(asked.code(), Some(101));
        drop(quiet);
        assert!(!policy.exists());
        std::fs::write(&policy, "the machine's own").unwrap();
        drop(NoServices::at(&policy).unwrap());
        assert_eq!(std::fs::read_to_string(&policy).unwrap(), "the machine's own");
    }

    #[test]
    fn what_is_missing_is_named_before_anything_is_done() {
        const LACKS: Server = Server {
            name: "thing",
            version: "1",
            cost: "nothing",
            needs: &[Need { command: "no-such-program", get: "from nowhere" }],
            installed: |_| false,
            install: |_| panic!("it must not begin"),
            start: |_| Ok(()),
            stop_signals: &[],
        };
        let dir = tempfile::tempdir().unwrap();
        let error = install(&Cache::at(dir.path()), &[&LACKS]).unwrap_err().to_string();
        assert!(error.contains("thing needs `no-such-program`: from nowhere"), "{error}");
    }
}
