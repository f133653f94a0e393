//! The test programs of the workspace, a few at a time: most of them wait for servers, not for a
//! processor.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cargo::{self, Counts};

/// A test program.
pub struct Suite {
    /// As in `bus/kafka`.
    name: String,
    program: PathBuf,
    /// Of its package: where cargo would run it.
    dir: PathBuf,
}

/// What cargo says of a file that it has built.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the tests of the whole workspace.
pub fn build() -> Result<Vec<Suite>> {
    let args = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let messages = cargo::output(&args)?;
    let mut suites = messages.lines().filter_map(suite).collect::<Vec<_>>();
    // The largest contain the most, and the last to end should be a short one.
    suites.sort_by_key(|suite| {
        std::cmp::Reverse(std::fs::metadata(&suite.program).map_or(0, |file| file.len()))
    });
    Ok(suites)
}

fn suite(message: &str) -> Option<Suite> {
    // Other messages have other fields.
    let artifact: Artifact = serde_json::from_str(message).ok()?;
    let program = artifact.executable.filter(|_| artifact.profile.test)?;
    let dir = artifact.manifest_path.parent()?.to_owned();
    let package = dir.file_name()?.to_string_lossy().into_owned();
    Some(Suite { name: format!("{package}/{}", artifact.target.name), program, dir })
}

/// Runs suites, `at_once` of them at a time. What each prints is passed on to `out` when it ends.
/// `begun` gets the process id of each. Returns how many tests there were, and which suites failed.
pub fn run<'a>(
    suites: &'a [Suite],
    at_once: usize,
    env: &[(String, String)],
    out: &mut (impl Write + Send),
    begun: impl Fn(u32) -> Result<()> + Sync,
) -> Result<(Counts, Vec<&'a str>)> {
    let left = Mutex::new(suites.iter());
    let done = Mutex::new((Counts::default(), Vec::new(), out));
    let work = || -> Result<()> {
        loop {
            let next = left.lock().expect("no panic").next();
            let Some(suite) = next else { return Ok(()) };
            let started = Instant::now();
            // A file: what a test leaves running would hold a pipe open.
            let mut output = tempfile::tempfile()?;
            let mut child = suite.start(env, &output)?;
            begun(child.id())?;
            let passed = child.wait()?.success();
            let mut printed = Vec::new();
            output.rewind().and_then(|()| output.read_to_end(&mut printed))?;
            let (counts, failed, out) = &mut *done.lock().expect("no panic");
            writeln!(out, "\n     Ran {} in {:.1} s", suite.name, started.elapsed().as_secs_f64())?;
            out.write_all(&printed)?;
            String::from_utf8_lossy(&printed).lines().for_each(|line| counts.add(line));
            if !passed {
                failed.push(suite.name.as_str());
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("no panic"));
        ended.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })?;
    let (counts, failed, _) = done.into_inner().expect("no panic");
    Ok((counts, failed))
}

impl Suite {
    fn start(&self, env: &[(String, String)], output: &File) -> Result<Child> {
        let child = Command::new(&self.program)
            .current_dir(&self.dir)
            .env("CARGO_MANIFEST_DIR", &self.dir)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn();
        child.with_context(|| format!("{} cannot start", self.program.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_recognised_among_the_messages_of_cargo() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"/a/crates/bus/Cargo.toml",
                "target":{{"kind":["test"],"name":"kafka"}},"profile":{{"opt_level":"0","test":{test}}},
                "executable":{executable},"fresh":true}}"#
            )
        };
        let found = suite(&message(true, r#""/t/debug/deps/kafka-1""#)).unwrap();
        assert_eq!(found.name, "bus/kafka");
        assert_eq!(found.dir, PathBuf::from("/a/crates/bus"));
        assert!(suite(&message(false, r#""/t/debug/mainstay""#)).is_none());
        assert!(suite(&message(true, "null")).is_none());
        assert!(suite(r#"{"reason":"build-finished","success":true}"#).is_none());
    }

    #[test]
    fn every_suite_runs_and_those_that_fail_are_named() {
        let suite = |name: &str, line: &str| {
            let dir = tempfile::tempdir().unwrap().keep();
            let program = dir.join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{line}\n")).unwrap();
            Command::new("chmod").arg("+x").arg(&program).status().unwrap();
            Suite { name: name.into(), program, dir }
        };
        let suites = [
            suite("a", "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'"),
            suite("b", "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored' >&2; exit 101"),
            suite("c", "test \"$PWD\" = \"$CARGO_MANIFEST_DIR\" && test $KEY = value"),
        ];
        let env = [("KEY".to_owned(), "value".to_owned())];
        let mut out = Vec::new();
        let (counts, failed) = run(&suites, 2, &env, &mut out, |_| Ok(())).unwrap();
        assert_eq!(failed, ["b"]);
        assert_eq!(counts, Counts { passed: 3, failed: 1, skipped: 0 });
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("Ran b in ") && out.contains("FAILED. 1 passed"), "{out}");
        suites.iter().for_each(|suite| std::fs::remove_dir_all(&suite.dir).unwrap());
    }
}
