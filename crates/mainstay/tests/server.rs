//! The server and the client of the same binary, on a machine that has nothing else.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of the test's own; stopped at the end even if the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.args(args).env_clear().env("USER", "tess").env("XDG_CONFIG_HOME", dir.join("config"));
    command.env("MAINSTAY_DATA_DIR", dir.join("data"));
    command
}

fn start(dir: &Path) -> Server {
    let mut command = command(dir, &["server", "--listen", "127.0.0.1:0"]);
    let server = Server(command.stderr(Stdio::null()).spawn().expect("the binary runs"));
    wait_for("the server's address", || dir.join("data/address").exists());
    server
}

/// Waits for a condition, not for a time.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command(dir, args).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_fresh_server_can_be_signed_in_to_asked_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, said) = run(dir.path(), &["login", "--local"]);
    assert_eq!(code, 2, "there is no server yet: {said}");
    let mut server = start(dir.path());

    let address = std::fs::read_to_string(dir.path().join("data/address")).unwrap();
    let list = ["list", "widget", "--server", address.trim()];
    let (code, _, said) = run(dir.path(), &list);
    assert_eq!(code, 0, "a user who can read the key need not sign in: {said}");
    let mut stranger = command(dir.path(), &list);
    stranger.env("MAINSTAY_DATA_DIR", dir.path().join("elsewhere"));
    let code = stranger.output().expect("the binary runs").status.code();
    assert_eq!(code, Some(3), "others must");
    let (code, _, said) = run(dir.path(), &["login", "--local"]);
    assert_eq!(code, 0, "{said}");
    let (code, out, said) = run(dir.path(), &["list", "widget", "-o", "json"]);
    assert_eq!((code, out.trim()), (0, "[]"), "{said}");
    let (code, _, said) = run(dir.path(), &["work"]);
    assert_eq!(code, 0, "an admin sees the queue: {said}");
    let (code, out, _) = run(dir.path(), &["audit", "verify"]);
    assert!(code == 0 && out.starts_with("0:"), "{out}");
    let (code, _, _) = run(dir.path(), &["get", "widget/none"]);
    assert_eq!(code, 5);

    let (code, token, _) = run(dir.path(), &["token", "--subject", "bob"]);
    assert_eq!(code, 0);
    let (code, _, _) = run(dir.path(), &["work", "--token", token.trim()]);
    assert_eq!(code, 4, "bob is not an admin");
    let (_, offline, _) = run(dir.path(), &["token", "--subject", "bob", "--offline"]);
    let args = ["login", "--token", offline.trim(), "--server", address.trim(), "--context", "bob"];
    let (code, _, said) = run(dir.path(), &args);
    assert_eq!(code, 0, "{said}");
    assert_eq!(run(dir.path(), &["list", "widget"]).0, 0);
    let contexts = dir.path().join("config/mainstay/contexts.toml");
    let contexts = std::fs::read_to_string(contexts).unwrap();
    let (_, refresh) = contexts.split_once("[contexts.bob.refresh]").unwrap();
    let copied = refresh.split('"').nth(1).unwrap();
    assert_ne!(copied, offline.trim(), "it was traded for another");
    assert_eq!(run(dir.path(), &["logout"]).0, 0);
    let args = ["login", "--token", copied, "--server", address.trim(), "--context", "thief"];
    let (code, _, said) = run(dir.path(), &args);
    assert!(code == 3 && said.contains("session has ended"), "{said}");
    assert_eq!(run(dir.path(), &["login", "--local"]).0, 0);

    let (code, _, said) = run(dir.path(), &["server", "--listen", "127.0.0.1:0"]);
    assert!(code == 6 && said.contains("in use"), "a second server on the same data: {said}");
    let stop = format!("kill -TERM {}", server.0.id());
    assert!(Command::new("sh").args(["-c", &stop]).status().unwrap().success());
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    let (code, _, said) = run(dir.path(), &["list", "widget"]);
    assert_eq!(code, 7, "it is gone: {said}");
}

#[test]
fn migrating_makes_the_tables_and_again_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let (code, _, said) = run(dir.path(), &["migrate"]);
        assert!(code == 0 && said.contains("SQLite"), "{said}");
    }
}
