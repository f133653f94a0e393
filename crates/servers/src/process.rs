//! A process that leads a group, known by its id and by when it started: ids are given out again,
//! and a file that names one may be old. Nothing is ever stopped by its name.

use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    /// When it started, in the system's own words; only ever compared.
    started: String,
}

/// How long a signal may take to be heeded.
const TIMEOUT: Duration = Duration::from_secs(20);

impl Process {
    pub fn current() -> Result<Process> {
        Process::of(std::process::id())
    }

    pub fn of(pid: u32) -> Result<Process> {
        let started = started(pid).with_context(|| format!("process {pid} is gone"))?;
        Ok(Process { pid, started })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn is_alive(&self) -> bool {
        started(self.pid).as_ref() == Some(&self.started)
    }

    /// Sends a signal to the leader and everything that it started, if it is still the one that is
    /// meant.
    pub fn signal(&self, signal: &str) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        send(signal, self.pid)?;
        // On a loaded machine its other threads run on until the signalled one is scheduled.
        let begun = Instant::now();
        while signal == "STOP" && self.moves() && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn moves(&self) -> bool {
        let tasks = |pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let stats = self.family().into_iter().flat_map(tasks).flatten();
        let stats = stats.filter_map(|task| words(&task.path().join("stat")));
        let still = ["T", "Z", "X"];
        stats.filter_map(|words| words.into_iter().next()).any(|state| !still.contains(&&*state))
    }

    /// Asks the leader with each signal in turn until it is gone, then ends what it left behind.
    pub fn stop(&self, signals: &[&str]) -> Result<()> {
        for signal in signals {
            if !self.is_alive() {
                break;
            }
            // One that stands still hears nothing but KILL.
            kill(&[self.pid.into()], signal)?;
            send("CONT", self.pid)?;
            self.wait_until_gone(TIMEOUT);
        }
        self.signal("KILL")?;
        self.wait_until_gone(TIMEOUT);
        if self.is_alive() {
            bail!("process {} does not stop", self.pid);
        }
        // An id is not given out again while a group has it; another leader is another group.
        if started(self.pid).is_none() {
            kill(&[-i64::from(self.pid)], "KILL")?;
        }
        Ok(())
    }

    /// The leader and everything that it started and that lives.
    pub fn family(&self) -> Vec<u32> {
        let mut family = descendants(self.pid);
        family.push(self.pid);
        family
    }

    pub fn wait_until_gone(&self, timeout: Duration) {
        let begun = Instant::now();
        while self.is_alive() && begun.elapsed() < timeout {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// To a group and to whatever its leader started that left it.
fn send(signal: &str, leader: u32) -> Result<()> {
    let mut targets = vec![-i64::from(leader)];
    targets.extend(descendants(leader).into_iter().map(i64::from));
    kill(&targets, signal)
}

/// A process that has ended counts as signalled.
fn kill(targets: &[i64], signal: &str) -> Result<()> {
    let targets: Vec<String> = targets.iter().map(i64::to_string).collect();
    // The shell's own kill: there may be no other.
    let kill = format!("kill -s {signal} -- {} 2>/dev/null || true", targets.join(" "));
    Command::new("sh").args(["-c", &kill]).status().context("sh cannot run")?;
    Ok(())
}

fn descendants(leader: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, stat(pid)?.get(1)?.parse().ok()?))
        })
        .collect();
    let mut family = vec![leader];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
        family.extend(children.collect::<Vec<_>>());
        next += 1;
    }
    family.split_off(1)
}

/// The words of `/proc/PID/stat` after the name, which is in brackets and may hold anything.
fn stat(pid: u32) -> Option<Vec<String>> {
    words(Path::new(&format!("/proc/{pid}/stat")))
}

fn words(stat: &Path) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(stat).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn started(pid: u32) -> Option<String> {
    if cfg!(target_os = "linux") {
        let stat = stat(pid)?;
        let (state, ticks) = (stat.first()?, stat.get(19)?);
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // A zombie has ended; only its parent has not looked yet.
        (state != "Z").then(|| format!("{ticks}-{}", boot.trim()))
    } else {
        let output = Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output();
        let said = String::from_utf8_lossy(&output.ok()?.stdout).trim().replace(' ', "-");
        (!said.is_empty()).then_some(said)
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

impl FromStr for Process {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Process> {
        let (pid, started) = text.trim().split_once(' ').context("must be a pid and its start")?;
        Ok(Process { pid: pid.parse()?, started: started.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_and_not_by_its_id_alone() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert_eq!(process.to_string().parse::<Process>().unwrap(), process);
        assert!(process.is_alive());
        let namesake = Process { pid: child.id(), started: "long ago".into() };
        assert!(!namesake.is_alive());
        namesake.stop(&["KILL"]).unwrap();
        assert!(process.is_alive(), "a namesake was stopped instead");
        process.signal("STOP").unwrap();
        assert!(!process.moves());
        process.stop(&["TERM"]).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn what_a_leader_leaves_behind_is_ended_too() {
        // The pipe is open for as long as any of them lives.
        let mut child = Command::new("sh")
            .args(["-c", "sleep 300 & exit 0"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let process = Process { pid: child.id(), started: "it has ended by now".into() };
        child.wait().unwrap();
        process.stop(&[]).unwrap();
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
