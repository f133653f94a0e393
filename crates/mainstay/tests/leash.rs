//! `mainstay leash`: nothing that it runs outlives the lease by more than the grace period.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kernel::Class;
use kernel::leash::{ENDED, Leash, Program};
use tokio::sync::mpsc;

const LONG: Duration = Duration::from_secs(600);

fn leash(at_once: usize, grace: Duration) -> Leash {
    let argv = vec![OsString::from(env!("CARGO_BIN_EXE_mainstay")), "leash".into()];
    Leash::new("sh", argv, at_once, grace)
}

fn shell(script: &str) -> Program {
    Program {
        path: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        dir: "/".into(),
        env: vec![("GREETING".into(), "hello".into())],
        timeout: LONG,
    }
}

/// A file that a script appends to.
struct Log(tempfile::TempDir);

impl Log {
    fn new() -> Log {
        Log(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("log")
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn until(&self, line: &str) {
        until(line, || self.lines().iter().any(|it| it == line)).await;
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn output_and_exit_code_are_passed_on_and_what_stays_in_the_group_is_killed() {
    let log = Log::new();
    let script = format!(
        "echo $GREETING; echo bad >&2; sleep 600 & echo $! > {}; exit 7",
        log.path().display()
    );
    let mut lines = Vec::new();
    let leash = leash(1, LONG);
    let program = shell(&script);
    let ended = leash.run(&program, || LONG, |_| {}, |line| lines.push(line.to_owned())).await;
    assert_eq!(ended.unwrap().code(), Some(7));
    assert_eq!(lines, ["hello", "bad"]);
    let left_behind = &log.lines()[0];
    until("its child is gone", || !is_alive(left_behind)).await;
}

#[tokio::test]
async fn a_program_that_cannot_be_started_says_why() {
    let mut lines = Vec::new();
    let program = Program { path: "/nowhere".into(), ..shell("") };
    let ended =
        leash(1, LONG).run(&program, || LONG, |_| {}, |line| lines.push(line.to_owned())).await;
    assert_eq!(ended.unwrap().code(), Some(127));
    assert!(lines[0].contains("/nowhere cannot be started"), "{lines:?}");
}

/// Appends its pid, that of a child, and that it was interrupted; `stubborn` ignores that.
fn cleaning_up(log: &Path, stubborn: bool) -> String {
    let log = log.display();
    let end = if stubborn { "" } else { "kill $!; exit 1" };
    format!(
        "trap 'echo interrupted >> {log}; {end}' INT; sleep 600 & echo $! >> {log}; \
         echo $$ >> {log}; echo ready >> {log}; while :; do wait; done"
    )
}

#[tokio::test]
async fn renewals_keep_it_running_and_the_end_of_the_lease_interrupts_it() {
    let log = Log::new();
    let (sender, mut asked) = mpsc::unbounded_channel();
    let lease = Arc::new(AtomicU64::new(300));
    let current = lease.clone();
    let program = shell(&cleaning_up(&log.path(), false));
    let leash = leash(1, LONG);
    let run = leash.run(
        &program,
        move || {
            let _ = sender.send(());
            Duration::from_millis(current.load(Ordering::SeqCst))
        },
        |_| {},
        |_| {},
    );
    let driver = async {
        log.until("ready").await;
        // Each renewal asks twice: many more than one lease would allow.
        for _ in 0..20 {
            asked.recv().await.unwrap();
        }
        assert!(!log.lines().contains(&"interrupted".to_owned()), "{:?}", log.lines());
        lease.store(0, Ordering::SeqCst);
    };
    let (ended, ()) = tokio::join!(run, driver);
    assert_eq!(ended.unwrap().code(), Some(ENDED.into()));
    let lines = log.lines();
    assert_eq!(lines.last().unwrap(), "interrupted", "{lines:?}");
    assert!(!is_alive(&lines[0]) && !is_alive(&lines[1]), "{lines:?}");
}

#[tokio::test]
async fn a_dropped_run_is_interrupted_and_one_that_ignores_that_is_killed() {
    for stubborn in [false, true] {
        let log = Log::new();
        let program = shell(&cleaning_up(&log.path(), stubborn));
        let grace = if stubborn { Duration::from_millis(200) } else { LONG };
        let leash = leash(1, grace);
        tokio::select! {
            _ = leash.run(&program, || LONG, |_| {}, |_| {}) => panic!("it does not end by itself"),
            () = log.until("ready") => {}
        }
        let lines = log.lines();
        until("both are gone", || !is_alive(&lines[0]) && !is_alive(&lines[1])).await;
        assert_eq!(log.lines()[3], "interrupted");
    }
}

#[tokio::test]
async fn no_more_run_at_once_than_are_allowed() {
    let leash = leash(1, LONG);
    let (first, second) = (shell("sleep 600"), shell("true"));
    tokio::select! {
        // The first is started before the second is tried.
        biased;
        _ = leash.run(&first, || LONG, |_| {}, |_| {}) => panic!("it does not end by itself"),
        refused = leash.run(&second, || LONG, |_| {}, |_| {}) => {
            let error = refused.unwrap_err();
            assert_eq!(error.class(), Class::Transient);
            assert!(error.to_string().contains("as many runs of sh"), "{error}");
        }
    }
    assert!(leash.run(&second, || LONG, |_| {}, |_| {}).await.unwrap().success());
}

/// Runs only as the parent process of the next test, which kills it.
#[tokio::test]
async fn as_a_server_that_is_killed() {
    let Ok(log) = std::env::var("MAINSTAY_TEST_LEASH_LOG") else { return };
    let program = shell(&cleaning_up(Path::new(&log), false));
    leash(1, LONG).run(&program, || LONG, |_| {}, |_| {}).await.unwrap();
}

#[tokio::test]
async fn after_kill_9_of_the_server_the_program_is_interrupted_and_nothing_is_left() {
    let log = Log::new();
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["as_a_server_that_is_killed", "--exact", "--nocapture"]);
    server.env("MAINSTAY_TEST_LEASH_LOG", log.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    log.until("ready").await;
    // SIGKILL: it can tell nobody.
    server.kill().unwrap();
    server.wait().unwrap();
    log.until("interrupted").await;
    let lines = log.lines();
    until("both are gone", || !is_alive(&lines[0]) && !is_alive(&lines[1])).await;
}

#[tokio::test]
async fn the_server_kills_the_program_of_a_leash_that_was_killed() {
    let log = Log::new();
    let leash = leash(1, LONG);
    let (program, mut id) = (shell(&cleaning_up(&log.path(), false)), 0);
    let killed = async {
        log.until("ready").await;
        let parent = format!("/proc/{}/stat", log.lines()[1]);
        let stat = std::fs::read_to_string(parent).unwrap();
        let leash = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned();
        let kill = Command::new("kill").args(["-s", "KILL", &leash]).status().unwrap();
        assert!(kill.success());
        leash
    };
    let run = leash.run(&program, || LONG, |pid| id = pid, |_| {});
    let (ended, leash) = tokio::join!(run, killed);
    assert!(!ended.unwrap().success() && id.to_string() == leash);
    let lines = log.lines();
    until("both are gone", || !is_alive(&lines[0]) && !is_alive(&lines[1])).await;
}

#[tokio::test]
async fn a_frozen_server_loses_its_program_at_the_deadline() {
    let log = Log::new();
    let mut leash = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    leash.args(["leash", "--", "300,60000", "/bin/sh", "-c", &cleaning_up(&log.path(), false)]);
    let mut leash = leash.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    log.until("ready").await;
    // The pipe stays open, and one renewal comes; then none.
    let mut pipe = leash.stdin.take().unwrap();
    pipe.write_all(b"200\n").unwrap();
    let status = tokio::task::spawn_blocking(move || leash.wait().unwrap()).await.unwrap();
    drop(pipe);
    assert_eq!(status.code(), Some(ENDED.into()));
    assert_eq!(log.lines().last().unwrap(), "interrupted");
}
