//! Unix without `/proc`: uses `ps`, which does not show the environment of other processes, so those
//! that left an instance's group are not found.

use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use super::{Identity, ProcessEntry};

const COLUMNS: &str = "pid=,pgid=,stat=,lstart=";

fn ps(arguments: &[&str]) -> Vec<ProcessEntry> {
    let output = Command::new("ps").args(arguments).args(["-o", COLUMNS]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(read).collect()
}

fn read(line: &str) -> Option<ProcessEntry> {
    let mut words = line.split_ascii_whitespace();
    let (pid, group, state) = (words.next()?, words.next()?, words.next()?);
    let born = words.collect::<Vec<_>>().join(" ");
    Some(ProcessEntry {
        identity: Identity { pid: pid.parse().ok()?, born },
        group: group.parse().ok()?,
        ended: state.starts_with('Z'),
    })
}

pub fn lookup(pid: u32) -> Option<ProcessEntry> {
    ps(&["-p", &pid.to_string()]).pop()
}

pub fn all() -> Vec<ProcessEntry> {
    ps(&["-ax"])
}

pub fn is_marked(_pid: u32, _mark: &str) -> bool {
    false
}

pub async fn ended(_identity: &Identity) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

pub fn signal(identity: &Identity, signal: Signal) -> std::io::Result<()> {
    let Some(number) = identity.number().filter(|_| identity.is_alive()) else { return Ok(()) };
    match kill_process(number, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}
