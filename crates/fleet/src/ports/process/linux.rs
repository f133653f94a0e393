//! Linux: `/proc`, and process descriptors, which never come to mean another process.

use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Identity, MARK, ProcessEntry};

/// Start times count from the boot, so they are comparable only within one.
static BOOT: LazyLock<String> = LazyLock::new(|| {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
});

pub fn lookup(pid: u32) -> Option<ProcessEntry> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may contain anything, even parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let (state, group, started) = (fields.first()?, fields.get(2)?, fields.get(19)?);
    Some(ProcessEntry {
        identity: Identity { pid, born: format!("{}/{started}", *BOOT) },
        group: group.parse().ok()?,
        ended: matches!(*state, "Z" | "X"),
    })
}

pub fn all() -> Vec<ProcessEntry> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| lookup(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Processes of other users cannot be read, and are not ours.
pub fn is_marked(pid: u32, mark: &str) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    let expected = format!("{MARK}={mark}");
    environment.split(|byte| *byte == 0).any(|entry| {
        if mark.ends_with(':') {
            entry.starts_with(expected.as_bytes())
        } else {
            entry == expected.as_bytes()
        }
    })
}

/// `None` if it has ended.
fn open(identity: &Identity) -> Result<Option<OwnedFd>, Errno> {
    let Some(number) = identity.number() else { return Ok(None) };
    match pidfd_open(number, PidfdFlags::empty()) {
        // Checked after opening: from here on the descriptor means this process or none.
        Ok(descriptor) => Ok(identity.is_alive().then_some(descriptor)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error if this kernel has no process descriptors.
#[expect(
    deprecated,
    reason = "its successor is unsafe to call, for the sake of types that lend out a descriptor \
              they do not own; this one owns it"
)]
pub async fn ended(identity: &Identity) -> std::io::Result<()> {
    if let Some(descriptor) = open(identity)? {
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        let _ = descriptor.readable().await?;
    }
    Ok(())
}

pub fn signal(identity: &Identity, signal: Signal) -> std::io::Result<()> {
    let Some(descriptor) = open(identity)? else { return Ok(()) };
    match pidfd_send_signal(&descriptor, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}
