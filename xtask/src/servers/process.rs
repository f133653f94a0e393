//! A process, known by its id and by when it started: ids are given out again, and a file that
//! names one may be old. Nothing is ever stopped by its name.

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

/// How long a polite signal may take.
const PATIENCE: Duration = Duration::from_secs(15);

impl Process {
    pub fn current() -> Result<Process> {
        Process::of(std::process::id())
    }

    pub fn of(pid: u32) -> Result<Process> {
        let started = started(pid).with_context(|| format!("process {pid} is gone"))?;
        Ok(Process { pid, started })
    }

    pub fn is_alive(&self) -> bool {
        started(self.pid).as_ref() == Some(&self.started)
    }

    /// Sends each signal in turn until it is gone.
    pub fn stop(&self, signals: &[&str]) -> Result<()> {
        for signal in signals {
            if !self.is_alive() {
                return Ok(());
            }
            // The shell's own kill: there may be no other.
            let kill = format!("kill -{signal} {}", self.pid);
            Command::new("sh").args(["-c", &kill]).status().context("sh cannot run")?;
            let begun = Instant::now();
            while self.is_alive() && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if self.is_alive() {
            bail!("process {} does not stop", self.pid);
        }
        Ok(())
    }
}

fn started(pid: u32) -> Option<String> {
    if cfg!(target_os = "linux") {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything; what follows are words.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?;
        let ticks = words.nth(18)?;
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
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_and_not_by_its_id_alone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert_eq!(process.to_string().parse::<Process>().unwrap(), process);
        assert!(process.is_alive());
        let namesake = Process { pid: child.id(), started: "long ago".into() };
        assert!(!namesake.is_alive());
        namesake.stop(&["KILL"]).unwrap();
        assert!(process.is_alive(), "a namesake was stopped instead");
        process.stop(&["TERM"]).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
