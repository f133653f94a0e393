//! The house rules that a machine can check, over every file that git knows.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the checkout: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files() -> Vec<File> {
    let args = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(args).current_dir(root()).output();
    let listed = output.expect("git runs: the rules are about what it tracks").stdout;
    let listed = String::from_utf8(listed).expect("paths are text");
    let read = |path: &str| {
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    };
    let files: Vec<File> = listed.lines().filter_map(read).collect();
    assert!(files.len() > 20, "git lists only {} files", files.len());
    files
}

fn rust() -> Vec<File> {
    files().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// Fails with all findings at once.
fn none(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

/// Findings in the lines of files. `wrong` sees the line, trimmed.
fn lines(files: &[File], wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        for (i, line) in file.text.lines().enumerate() {
            if wrong(line.trim()) {
                found.push(format!("{}:{}: {}", file.path, i + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn no_rust_file_is_longer_than_500_lines() {
    let long = rust().into_iter().map(|file| (file.text.lines().count(), file.path));
    let long =
        long.filter(|(lines, _)| *lines > 500).map(|(lines, path)| format!("{path}: {lines}"));
    none("a file is a thought; look for the second one in", long.collect());
}

#[test]
fn every_rust_file_begins_by_saying_what_it_is_for() {
    let silent = rust().into_iter().filter(|file| !file.text.starts_with("//! "));
    none("no `//!` line at the top of", silent.map(|file| file.path).collect());
}

#[test]
fn no_file_or_module_is_named_after_nothing() {
    const EMPTY: [&str; 8] =
        ["util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"];
    let empty = |name: &str| {
        name.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(|word| EMPTY.contains(&word))
    };
    let mut found: Vec<String> =
        files().into_iter().map(|file| file.path).filter(|path| empty(path)).collect();
    found.extend(lines(&rust(), |line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ").is_some_and(empty)
    }));
    none("say what it is instead", found);
}

#[test]
fn what_is_left_to_do_has_a_reason() {
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    let bare = |line: &str| {
        marks.iter().any(|mark| {
            line.match_indices(mark.as_str())
                .any(|(at, _)| !line[at + mark.len()..].starts_with('('))
        })
    };
    none("write the reason in brackets after", lines(&rust(), bare));
}

#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() {
    let (outer, inner) = (["#[al", "low"].concat(), ["#![al", "low"].concat());
    let found = lines(&rust(), |line| line.starts_with(&outer) || line.starts_with(&inner));
    none("use #[expect(…, reason = \"…\")]", found);
}

#[test]
fn no_task_is_started_without_someone_who_waits_for_it() {
    let spawn = ["tokio::", "spawn("].concat();
    // Tests and benchmarks may: their tasks end with their runtime.
    let product = |path: &str| path.starts_with("crates/") && !path.starts_with("crates/testkit/");
    let sources = rust().into_iter().filter(|f| product(&f.path) && f.path.contains("/src/"));
    let sources: Vec<File> = sources
        .map(|file| {
            let code = file.text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            File { path: file.path, text: code }
        })
        .collect();
    let bare = |line: &str| line.contains(&spawn) && !line.contains("run_until_cancelled");
    none("use a TaskTracker, or stop it by a token", lines(&sources, bare));
}

#[test]
fn nothing_knows_the_machine_that_it_was_written_on() {
    let places = ["home", "root", "Users", "work"];
    let mut needles = Vec::new();
    for place in places {
        for before in ["\"", "'", "`", " ", "(", "="] {
            needles.push(format!("{before}/{place}/"));
        }
    }
    let found = lines(&files(), |line| needles.iter().any(|needle| line.contains(needle.as_str())));
    none("paths of a machine", found);
}

#[test]
fn a_decision_fits_on_a_page() {
    let decisions = files().into_iter().filter(|file| file.path.starts_with("docs/decisions/"));
    let long = decisions.filter(|file| file.text.lines().count() > 60);
    none("more than 60 lines", long.map(|file| file.path).collect());
}

#[test]
fn architecture_can_be_read_in_one_sitting() {
    let file = files().into_iter().find(|file| file.path == "ARCHITECTURE.md");
    let lines = file.expect("ARCHITECTURE.md is there").text.lines().count();
    assert!(lines <= 200, "ARCHITECTURE.md has {lines} lines");
}

/// `MAINSTAY_TEST_WRITE=1` writes it instead.
#[test]
fn the_documented_configuration_is_the_one_in_the_code() {
    let path = root().join("docs/config.toml");
    let right = mainstay::config::default_document();
    if std::env::var_os("MAINSTAY_TEST_WRITE").is_some() {
        std::fs::write(&path, &right).expect("docs/config.toml can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, right, "run: MAINSTAY_TEST_WRITE=1 cargo test -p mainstay --test tidy");
}
