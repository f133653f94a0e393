//! `cargo xtask servers` starts, tells, stops, and leaves nothing behind however it ends. With
//! PostgreSQL alone, which needs no cache, and with a cache of the test's own.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use servers::{Cache, Place, Process, Run, find};

fn xtask(cache: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.env("MAINSTAY_SERVERS_DIR", cache).arg("servers").args(args);
    command
}

fn done(cache: &Path, args: &[&str]) -> Output {
    let output = xtask(cache, args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what} does not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Nothing to test with: the machine has no PostgreSQL, and a plain `cargo test` installs none.
fn skipped(cache: &Path) -> bool {
    let installed = (find("postgres").unwrap().installed)(&Cache::at(cache));
    if !installed {
        eprintln!("skipped: PostgreSQL is not installed");
    }
    !installed
}

/// What a run left behind.
fn is_gone(place: &Place, processes: &[Process]) -> bool {
    processes.iter().all(|process| !process.is_alive()) && !place.dir.exists()
}

#[test]
fn up_starts_what_is_not_up_and_down_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path();
    if skipped(cache) {
        return;
    }
    let refused = xtask(cache, &["env"]).output().unwrap();
    assert!(!refused.status.success(), "nothing runs yet");
    let first = said(&done(cache, &["up", "postgres"]));
    assert!(first.starts_with("export MAINSTAY_TEST_POSTGRES='postgres://"), "{first}");
    assert_eq!(said(&done(cache, &["up", "postgres"])), first, "it was up already");
    assert_eq!(said(&done(cache, &["env"])), first);
    assert!(said(&done(cache, &["status"])).contains("runs at postgres://"));
    assert!(said(&done(cache, &["logs", "postgres"])).contains("ready to accept connections"));
    let place = Run::kept(&Cache::at(cache)).places().unwrap().remove(0);
    let processes = place.processes().unwrap();
    processes[0].stop(&["KILL"]).unwrap();
    let again = said(&done(cache, &["up", "postgres"]));
    assert!(again.starts_with("export "), "a dead server is started again: {again}");
    let place = Run::kept(&Cache::at(cache)).places().unwrap().remove(0);
    let processes = place.processes().unwrap();
    done(cache, &["down"]);
    assert!(is_gone(&place, &processes));
    let unknown = xtask(cache, &["up", "no-such"]).output().unwrap();
    let why = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(why.contains("there is no server \"no-such\"; there are postgres, "), "{why}");
}

/// A run that holds on until it is ended, with its place and the processes in it.
struct Held {
    child: Child,
    place: Place,
    processes: Vec<Process>,
    address: String,
}

/// Whether the parent ignores SIGINT, which a child inherits.
#[derive(Clone, Copy, PartialEq)]
enum Interrupts {
    Default,
    Ignored,
}

fn hold(cache: &Path, interrupts: Interrupts) -> Held {
    let args = ["run", "--only", "postgres", "--", "sleep", "600"];
    let mut command = xtask(cache, &args);
    if interrupts == Interrupts::Ignored {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).arg(command.get_program());
        shell.args(command.get_args());
        shell.env("MAINSTAY_SERVERS_DIR", cache);
        command = shell;
    }
    // A group of its own, which stands for a terminal.
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let run = cache.join("run").join(child.id().to_string());
    let run = Run::at(&Cache::at(cache), &run);
    let connection_info =
        || run.places().ok()?.pop()?.connection_info().ok()?.get("").ok().map(str::to_owned);
    eventually("an address", || connection_info().is_some());
    let url = connection_info().unwrap();
    let address = url.split(['@', '/']).nth(3).unwrap().to_owned();
    assert!(TcpStream::connect(&address).is_ok(), "{address}");
    let place = run.places().unwrap().remove(0);
    let mut processes = place.processes().unwrap();
    let user = || {
        let files = std::fs::read_dir(run.dir()).ok()?.flatten().map(|file| file.path());
        let user = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "user"))?;
        std::fs::read_to_string(user).ok()?.parse().ok()
    };
    eventually("the command", || user().is_some());
    processes.extend(user());
    Held { child, place, processes, address }
}

fn ends_after(signal: &str, group: bool, interrupts: Interrupts) {
    let dir = tempfile::tempdir().unwrap();
    if skipped(dir.path()) {
        return;
    }
    let mut held = hold(dir.path(), interrupts);
    let target = if group { format!("-{}", held.child.id()) } else { held.child.id().to_string() };
    let kill = format!("kill -s {signal} -- {target}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    held.child.wait().unwrap();
    eventually("the end of the servers", || is_gone(&held.place, &held.processes));
    assert!(TcpStream::connect(&held.address).is_err(), "it still listens");
    eventually("the end of the run", || !dir.path().join("run").read_dir().unwrap().any(|_| true));
}

#[test]
fn nothing_is_left_after_ctrl_c() {
    ends_after("INT", true, Interrupts::Default);
}

#[test]
fn nothing_is_left_after_ctrl_c_when_the_parent_ignores_it() {
    ends_after("INT", true, Interrupts::Ignored);
}

#[test]
fn nothing_is_left_after_a_kill() {
    ends_after("KILL", false, Interrupts::Default);
}

#[test]
fn what_a_killed_guard_left_behind_is_ended_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path();
    if skipped(cache) {
        return;
    }
    let mut held = hold(cache, Interrupts::Default);
    let leader = Process::of(held.child.id()).unwrap();
    // The guard is a child of it, too.
    for pid in leader.family() {
        if held.processes.iter().all(|process| !process.family().contains(&pid)) {
            let kill = format!("kill -s KILL {pid}");
            Command::new("sh").args(["-c", &kill]).status().unwrap();
        }
    }
    held.child.wait().unwrap();
    assert!(held.processes[0].is_alive(), "nobody was left to end it");
    done(cache, &["down"]);
    assert!(is_gone(&held.place, &held.processes));
}
