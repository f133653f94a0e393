//! The process between us and a program: interrupts it at a deadline that only we can move.

use std::ffi::OsString;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, setrlimit};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How it is started: the first argument, as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Until the deadline, if it is not renewed.
    pub left: Duration,
    /// Between the interrupt and the kill.
    pub grace: Duration,
}

impl std::fmt::Display for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.left.as_millis(), self.grace.as_millis())
    }
}

impl Options {
    fn parse(text: &str) -> Option<Options> {
        let (left, grace) = text.split_once(',')?;
        let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
        Some(Options { left: millis(left)?, grace: millis(grace)? })
    }
}

/// The first line of output names the process group, before the program runs.
const STARTED: &str = "leash: started ";
/// Stands in place of the options in the process that becomes the program.
const EXEC: &str = "exec";

/// The process group, if this is the line that names it.
pub(super) fn started(line: &str) -> Option<Pid> {
    Pid::from_raw(line.strip_prefix(STARTED)?.parse().ok()?)
}

/// The exit code of a program that was interrupted here.
pub const ENDED: u8 = 124;
/// The exit code if the program cannot be started, as a shell has it.
const NOT_STARTED: u8 = 127;
/// Renewals that are not read yet: the writer sends few.
const RENEWALS_MAX: usize = 16;
/// How often the group is looked at while it ends.
const POLL: Duration = Duration::from_millis(20);
/// How long output may still come after the end: something that left the group may hold the pipe.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs `OPTIONS PROGRAM ARGS…`, and returns the exit code. Reads renewals from the standard input:
/// each line is the time until the deadline in milliseconds; its end is the deadline.
pub async fn supervise(args: &[OsString]) -> u8 {
    let [options, program, args @ ..] = args else {
        return explain("OPTIONS PROGRAM ARGS… expected");
    };
    if options == EXEC {
        return exec(program, args);
    }
    let Some(options) = options.to_str().and_then(Options::parse) else {
        return explain("the first argument must be LEFT_MS,GRACE_MS");
    };
    // A core dump would have the secrets of its environment.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let (mut child, output) = match spawn(program, args).await {
        Ok(started) => started,
        Err(error) => return explain(&format!("{} cannot be started: {error}", program.display())),
    };
    let code = run(&mut child, options).await;
    let _ = tokio::time::timeout(OUTPUT_TIMEOUT, output).await;
    code
}

fn explain(problem: &str) -> u8 {
    let _ = writeln!(std::io::stdout(), "leash: {problem}");
    NOT_STARTED
}

/// Becomes the program, once the server can know of it: at the first byte of the standard input.
fn exec(program: &OsString, args: &[OsString]) -> u8 {
    // If both the server and the leash are killed, at least the program itself ends.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if std::io::stdin().read_exact(&mut [0]).is_err() {
        return NOT_STARTED;
    }
    let mut command = std::process::Command::new(program);
    let error = command.args(args).stdin(Stdio::null()).exec();
    explain(&format!("{} cannot be started: {error}", program.display()))
}

/// Starts the program, and passes its output on even if nobody reads it any more: a broken pipe
/// must not end it before it has cleaned up.
async fn spawn(
    program: &OsString,
    args: &[OsString],
) -> std::io::Result<(Child, impl Future<Output = Result<(), tokio::task::JoinError>>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1).take_while(|arg| arg != "--"));
    command.args(["--", EXEC]).arg(program).args(args);
    command.process_group(0).stdin(Stdio::piped());
    let (mut output, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    let _ = writeln!(std::io::stdout(), "{STARTED}{}", child.id().unwrap_or(0));
    if let Some(mut begin) = child.stdin.take() {
        begin.write_all(b"\n").await?;
    }
    // The pipe ends when the program has closed it, so we must not have it.
    drop(command);
    let pump = tokio::task::spawn_blocking(move || {
        let (mut buffer, mut read) = ([0; 8192], true);
        while let Ok(n @ 1..) = output.read(&mut buffer) {
            let mut out = std::io::stdout();
            read = read && out.write_all(&buffer[..n]).and_then(|()| out.flush()).is_ok();
        }
    });
    Ok((child, pump))
}

async fn run(child: &mut Child, options: Options) -> u8 {
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut renewals = renewals();
    let mut stop = signal(SignalKind::terminate());
    let mut deadline = Instant::now() + options.left;
    let stopped = async {
        match &mut stop {
            Ok(stop) => drop(stop.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            status = child.wait() => {
                kill(group, Signal::KILL);
                return code(status);
            }
            left = renewals.recv() => match left {
                Some(left) => deadline = Instant::now() + left,
                None => break,
            },
            () = tokio::time::sleep_until(deadline) => break,
            () = &mut stopped => break,
        }
    }
    kill(group, Signal::INT);
    let kill_at = Instant::now() + options.grace;
    let ended = async {
        let _ = child.wait().await;
        // What it started may still be cleaning up.
        while alive(group) {
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout_at(kill_at, ended).await.is_err() {
        kill(group, Signal::KILL);
        let _ = child.wait().await;
    }
    ENDED
}

/// Reads renewals on a thread of its own: the standard input cannot be polled.
fn renewals() -> mpsc::Receiver<Duration> {
    let (sender, receiver) = mpsc::channel(RENEWALS_MAX);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(left) = line.trim().parse() else { continue };
            if sender.blocking_send(Duration::from_millis(left)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// No error if nothing of the group is left.
fn kill(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}

fn alive(group: Option<Pid>) -> bool {
    group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
}

fn code(status: std::io::Result<ExitStatus>) -> u8 {
    let Ok(status) = status else { return NOT_STARTED };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
