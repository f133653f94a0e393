//! Programs that do not outlive their lease.
//!
//! A program runs below a process of our own (`mainstay leash`, [`supervise`]) that knows a deadline.
//! [`Leash::run`] renews that while the attempt is alive. If this process is killed or frozen, loses
//! its lease or gives up, the other one interrupts the program and everything that it started, and
//! kills what is left after the grace period.

mod supervise;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use supervise::{ENDED, Options, supervise};

use crate::outbound::Delivery;
use crate::{Error, Result};

/// What runs programs of one kind, and how many at once.
#[derive(Clone)]
pub struct Leash {
    /// For errors.
    name: String,
    argv: Vec<OsString>,
    grace: Duration,
    /// So that programs that take hours leave the driver's slots to others.
    permits: Arc<Semaphore>,
}

/// A program to run.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
    pub dir: PathBuf,
    /// Added to the environment of this process.
    pub env: Vec<(OsString, OsString)>,
    /// From the start to the interrupt.
    pub timeout: Duration,
}

/// Longer lines of output are cut.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The deadline is renewed this often within the time that is left of the lease.
const RENEWALS: u32 = 3;

impl Leash {
    /// `argv` is what runs [`supervise`]; the program and its arguments are appended.
    pub fn new(name: &str, argv: Vec<OsString>, at_once: usize, grace: Duration) -> Leash {
        Leash { name: name.into(), argv, grace, permits: Arc::new(Semaphore::new(at_once)) }
    }

    /// The arguments for which this binary runs [`supervise`].
    pub fn own_argv() -> Result<Vec<OsString>> {
        let executable = std::env::current_exe();
        let executable =
            executable.map_err(|error| Error::unavailable("our own executable", error))?;
        Ok(vec![executable.into(), "leash".into()])
    }

    /// Runs a program to its end, and passes each line of its output on. `lease` says how long the
    /// attempt may still go on; when that is over, or when this future is dropped, the program is
    /// interrupted. Rejected if as many run as may at once: the caller tries later, without a slot.
    pub async fn run(
        &self,
        program: &Program,
        lease: impl Fn() -> Duration,
        started: impl FnOnce(u32),
        mut on_line: impl FnMut(&str),
    ) -> Result<ExitStatus> {
        let _permit = self.permits.try_acquire().map_err(|_| {
            let why = format!("as many runs of {} as may run at once are running", self.name);
            Error::unavailable(&*self.name, why).with_delivery(Delivery::Rejected)
        })?;
        let end = Instant::now() + program.timeout;
        let left = || lease().min(end.saturating_duration_since(Instant::now()));
        let mut command = self.command(program, left());
        let mut child = command.spawn().map_err(|error| self.failed("starting", error))?;
        if let Some(id) = child.id() {
            started(id);
        }
        let mut renewals = child.stdin.take();
        let output = child.stdout.take().map(BufReader::new);
        let mut lines = output.map(|output| output.split(b'\n'));
        let mut renew_at = Instant::now() + left() / RENEWALS;
        let mut group = None;
        let status = loop {
            tokio::select! {
                line = next(&mut lines), if lines.is_some() => match line {
                    Some(line) => match supervise::started(&line).filter(|_| group.is_none()) {
                        Some(started) => group = Some(started),
                        None => on_line(&line),
                    },
                    None => lines = None,
                },
                () = tokio::time::sleep_until(renew_at), if renewals.is_some() => {
                    renew(&mut renewals, left()).await;
                    renew_at = Instant::now() + left() / RENEWALS;
                }
                status = child.wait() => break status,
            }
        };
        let status = status.map_err(|error| self.failed("waiting for", error))?;
        while let Some(line) = next(&mut lines).await {
            match supervise::started(&line).filter(|_| group.is_none()) {
                Some(started) => group = Some(started),
                None => on_line(&line),
            }
        }
        // Killed, it could not end what it ran.
        if let Some(group) = group.filter(|_| status.signal().is_some()) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        Ok(status)
    }

    fn command(&self, program: &Program, left: Duration) -> Command {
        let mut command = Command::new(self.argv.first().map_or(OsStr::new(""), |first| first));
        command.args(self.argv.iter().skip(1));
        let options = Options { left, grace: self.grace };
        command.arg("--").arg(options.to_string());
        command.arg(&program.path).args(&program.args);
        command
            .current_dir(&program.dir)
            .envs(program.env.iter().map(|(name, value)| (name, value)));
        // Neither Ctrl-C nor anything else that is sent to our group is for it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    fn failed(&self, what: &str, error: std::io::Error) -> Error {
        Error::unavailable(format!("{what} {}", self.name), error)
    }
}

/// Tells the other process the new deadline; closes the pipe when there is none.
async fn renew(renewals: &mut Option<ChildStdin>, left: Duration) {
    let Some(pipe) = renewals.as_mut().filter(|_| !left.is_zero()) else {
        *renewals = None;
        return;
    };
    if pipe.write_all(format!("{}\n", left.as_millis()).as_bytes()).await.is_err() {
        *renewals = None;
    }
}

/// The next line; none at the end.
async fn next<R: tokio::io::AsyncBufRead + Unpin>(
    lines: &mut Option<tokio::io::Split<R>>,
) -> Option<String> {
    let line = lines.as_mut()?.next_segment().await.ok().flatten()?;
    Some(String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).into_owned())
}
