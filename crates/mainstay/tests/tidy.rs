//! The style rules that can be checked automatically, over every file that git tracks.

use std::collections::BTreeSet;
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
fn examples_are_tests_and_not_in_doc_comments() {
    let fence = |line: &str| line.starts_with("//") && line.contains("```");
    none("`cargo xtask test` runs the test programs only", lines(&rust(), fence));
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

/// The code of the product, without its tests.
fn product() -> Vec<File> {
    let ours = |path: &str| path.starts_with("crates/") && !path.starts_with("crates/testkit/");
    let sources = rust().into_iter().filter(|f| ours(&f.path) && f.path.contains("/src/"));
    let code = sources.map(|file| {
        let text = file.text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        File { path: file.path, text }
    });
    code.collect()
}

#[test]
fn no_task_is_started_without_someone_who_waits_for_it() {
    let spawn = ["tokio::", "spawn("].concat();
    let bare = |line: &str| line.contains(&spawn) && !line.contains("run_until_cancelled");
    none("use a TaskTracker, or stop it by a token", lines(&product(), bare));
}

#[test]
fn only_drafts_write_objects() {
    let made = ["create(", "update(", "transition("].map(|how| format!("Write::{how}"));
    let bare = |line: &str| made.iter().any(|made| line.contains(made));
    none("a kernel::Draft counts generations and sets times", lines(&product(), bare));
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

/// Words of no use to a reader who does not know the project, and what to write instead. They are
/// found in code, comments, strings and documents, also as a part of an identifier.
const BANNED_WORDS: [(&str, &str); 9] = [
    ("anew", "again, from the start"),
    ("beside", "besides, next to, concurrently with"),
    ("eyes", "cache, watch"),
    ("farewell", "grace period"),
    ("heard", "last seen, reported"),
    ("merciless", "kill"),
    ("sight", "visibility, cache update"),
    ("told", "notified, reported, desired"),
    ("whoever", "the caller, any client that"),
];

/// Identifiers with a meaning of the project's own. As plain English in a comment they are fine.
const BANNED_IDENTIFIERS: [(&str, &str); 9] = [
    ("ailment", "unhealthy reason"),
    ("desk", "service"),
    ("fate", "result"),
    ("heft", "cost"),
    ("judgement", "verdict"),
    ("patience", "timeout"),
    ("way", "path, client, progress"),
    ("ways", "paths, clients"),
    ("wishes", "annotations, desired state"),
];

/// Names in stored data that stay as they were.
const PINNED: [&str; 1] = ["heard_at"];

/// The lower-case words of a text, where `last_heard` and `LastHeard` are two words each.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in text.chars() {
        let starts = c.is_uppercase() && !before.is_uppercase();
        if starts || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("it begins with one").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A line of Rust without its strings and its comment.
fn code(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    line.split('"').step_by(2).collect::<Vec<_>>().join(" ")
}

/// `is no origin` instead of `is not an origin`.
fn says_is_no(line: &str) -> bool {
    let words = words(line);
    words.windows(3).enumerate().any(|(i, three)| {
        let there = i > 0 && words[i - 1] == "there";
        let fine = ["longer", "more", "less", "such", "need", "one", "other", "way"];
        three[0] == "is" && three[1] == "no" && !there && !fine.contains(&three[2].as_str())
    })
}

#[test]
fn the_words_are_the_fields() {
    let written = |file: &File| file.path.ends_with(".rs") || file.path.ends_with(".md");
    let own = |file: &File| file.path.ends_with("tests/tidy.rs");
    let mut found = Vec::new();
    for file in files().iter().filter(|file| written(file) && !own(file)) {
        let rust = file.path.ends_with(".rs");
        let text = PINNED.iter().fold(file.text.clone(), |text, name| text.replace(name, ""));
        for (i, line) in text.lines().enumerate() {
            let mut report = |word: &str, instead: &str| {
                found.push(format!("{}:{}: `{word}`; write: {instead}", file.path, i + 1));
            };
            let all = words(line);
            for (word, instead) in BANNED_WORDS {
                if all.iter().any(|other| other == word) {
                    report(word, instead);
                }
            }
            let identifiers = if rust { words(&code(line)) } else { Vec::new() };
            for (word, instead) in BANNED_IDENTIFIERS {
                if identifiers.iter().any(|other| other == word) {
                    report(word, instead);
                }
            }
            if says_is_no(line) {
                report("is no", "is not a, is not");
            }
        }
    }
    none("words that need a dictionary", found);
}

/// Clippy's `match_bool` does not see arms with a guard.
#[test]
fn a_boolean_is_not_matched() {
    let arm = |line: &str| {
        let rest = line.strip_prefix("true ").or_else(|| line.strip_prefix("false "));
        rest.is_some_and(|rest| rest.starts_with("=>") || rest.starts_with("if "))
    };
    none("write `if` and `else`", lines(&rust(), arm));
}

#[test]
fn a_word_is_found_in_identifiers_and_sentences() {
    assert_eq!(
        words("fn last_heard(&self) -> LastHeard"),
        ["fn", "last", "heard", "self", "last", "heard"]
    );
    assert_eq!(words(&code("let a = \"the way\"; // by the way")), ["let", "a"]);
    assert!(says_is_no("\"x\" is no origin") && !says_is_no("there is no origin"));
    assert!(!says_is_no("it is no longer there"));
}

/// A module of a domain, and the modules of the same crate that it may import.
const ARROWS: [(&str, &[&str]); 5] = [
    ("model", &["model"]),
    ("decide", &["model", "decide"]),
    ("store", &["model", "store"]),
    ("index", &["model", "index"]),
    ("ports", &["model", "ports"]),
];

/// Modules of which the first must not import the second.
const APART: [(&str, &str); 3] = [("work", "api"), ("api", "work"), ("api", "decide")];

/// The modules of its own crate that a file names: `crate::decide::…`.
fn imports(text: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for (at, found) in text.match_indices("crate::") {
        let rest = &text[at + found.len()..];
        let name = |text: &str| -> String {
            text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            None => drop(modules.insert(name(rest))),
            Some(group) => {
                // The first names of a group, not those within an inner one.
                let mut depth = 1;
                let mut first = true;
                for (i, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' => first = true,
                        c if first && depth == 1 && !c.is_whitespace() => {
                            modules.insert(name(&group[i..]));
                            first = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    modules
}

#[test]
fn the_modules_of_a_domain_import_along_the_arrows() {
    let mut found = Vec::new();
    for file in rust() {
        let Some((domain, rest)) =
            ["fleet", "streams", "advisor", "environments", "bus"].iter().find_map(|domain| {
                Some((domain, file.path.strip_prefix(&format!("crates/{domain}/src/"))?))
            })
        else {
            continue;
        };
        let module = rest.split(['/', '.']).next().unwrap_or_default();
        let imports = imports(&file.text);
        // A name in capitals is a type of the crate's root.
        let imports = || imports.iter().filter(|name| name.starts_with(|c: char| c.is_lowercase()));
        for (_, allowed) in ARROWS.iter().filter(|(of, _)| *of == module) {
            for import in imports().filter(|import| !allowed.contains(&import.as_str())) {
                found.push(format!("{}: {module} of {domain} imports {import}", file.path));
            }
        }
        for (_, other) in APART.iter().filter(|(of, _)| *of == module) {
            if imports().any(|import| import == other) {
                found.push(format!("{}: {module} of {domain} imports {other}", file.path));
            }
        }
    }
    none("imports against the arrows of ARCHITECTURE.md", found);
}

#[test]
fn imports_are_found_in_every_form() {
    let text =
        "use crate::model::{a, b};\nuse crate::{Fleet, ports::{x, y}, work};\ncrate::api::z()";
    let found = imports(text);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["Fleet", "api", "model", "ports", "work"]);
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
