//! Processes of this machine. Since pids are reused, a process is identified by its pid and start time.
//! The processes of an instance carry its mark in their environment, including descendants that left
//! the process group.

use std::time::Duration;

use futures::future::join_all;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod target;
#[cfg(not(target_os = "linux"))]
#[path = "other.rs"]
mod target;

/// The variable that every process of an instance inherits.
pub const MARK: &str = "MAINSTAY_INSTANCE";

/// How often processes are polled where the kernel has no process descriptors.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A process that SIGKILL does not end within this time hangs in the kernel.
const KILL_GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// The start time as the kernel formats it; unique among processes of one pid.
    pub born: String,
}

/// An entry of the process table.
#[derive(Debug)]
pub struct ProcessEntry {
    pub identity: Identity,
    pub group: u32,
    /// A zombie: it has ended and was not reaped.
    pub ended: bool,
}

/// Identifies the processes of an instance.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The value of [`MARK`]; if it ends in `:`, a prefix of it.
    pub mark: String,
    /// The process group, if its number is known to be still ours.
    pub group: Option<u32>,
}

impl Identity {
    /// The process that has this pid now.
    pub fn of_pid(pid: u32) -> Option<Identity> {
        target::lookup(pid).map(|entry| entry.identity)
    }

    pub fn is_alive(&self) -> bool {
        target::lookup(self.pid).is_some_and(|entry| !entry.ended && entry.identity == *self)
    }

    /// Waits until it has ended.
    pub async fn ended(&self) {
        if target::ended(self).await.is_ok() {
            return;
        }
        while self.is_alive() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends a signal to this process and to no other. No error if it has ended.
    pub fn signal(&self, signal: Signal) -> std::io::Result<()> {
        target::signal(self, signal)
    }

    fn number(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }
}

/// Stops all processes of an owner: SIGTERM, and after `grace` SIGKILL. Returns when none lives.
pub async fn terminate(owner: Owner, grace: Duration) -> std::io::Result<()> {
    let kill_at = Instant::now() + grace;
    let give_up_at = kill_at + KILL_GRACE;
    loop {
        let owner = owner.clone();
        let found = tokio::task::spawn_blocking(move || belonging_to(&owner)).await;
        let found = found.map_err(std::io::Error::other)?;
        let now = Instant::now();
        let (signal, until) = match found.as_slice() {
            [] => return Ok(()),
            _ if now < kill_at => (Signal::TERM, kill_at),
            _ if now < give_up_at => (Signal::KILL, give_up_at),
            [one, ..] => {
                let text = format!("process {} does not end after SIGKILL", one.pid);
                return Err(std::io::Error::other(text));
            }
        };
        for one in &found {
            one.signal(signal)?;
        }
        // Then look again: it may have had children meanwhile.
        let _ = tokio::time::timeout_at(until, join_all(found.iter().map(Identity::ended))).await;
    }
}

/// The living processes of an owner. Reads the whole process table: not for the event loop.
pub fn belonging_to(owner: &Owner) -> Vec<Identity> {
    let matches = |entry: &ProcessEntry| {
        !entry.ended
            && (owner.group == Some(entry.group)
                || target::is_marked(entry.identity.pid, &owner.mark))
    };
    target::all().into_iter().filter(matches).map(|entry| entry.identity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pid_with_another_start_time_is_not_signalled_and_counts_as_ended() {
        let mut child = tokio::process::Command::new("sleep").arg("60").spawn().unwrap();
        let real = Identity::of_pid(child.id().unwrap()).unwrap();
        let other = Identity { born: "long ago".into(), ..real.clone() };
        assert!(real.is_alive() && !other.is_alive());
        other.signal(Signal::KILL).unwrap();
        other.ended().await;
        assert!(real.is_alive());
        real.signal(Signal::KILL).unwrap();
        real.ended().await;
        assert!(!real.is_alive());
        child.wait().await.unwrap();
    }

    #[test]
    fn processes_are_found_by_group_and_by_mark() {
        use std::os::unix::process::CommandExt;
        let mark = format!("test:{}", std::process::id());
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").env(MARK, &mark).process_group(0).spawn().unwrap();
        let identity = Identity::of_pid(child.id()).unwrap();
        let by_group = Owner { mark: "another".into(), group: Some(child.id()) };
        assert_eq!(belonging_to(&by_group), vec![identity.clone()]);
        if cfg!(target_os = "linux") {
            let by_mark = Owner { mark, group: None };
            assert_eq!(belonging_to(&by_mark), vec![identity]);
        }
        child.kill().unwrap();
        // Ended, but in the process table until it is reaped.
        while !belonging_to(&by_group).is_empty() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
