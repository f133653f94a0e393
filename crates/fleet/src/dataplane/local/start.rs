//! Starts an instance's process: with its own process group, environment, directory and ports.

use std::path::Path;
use std::process::Stdio;

use kernel::{Error, Result};
use tokio::process::{Child, Command};

use super::output::Output;
use super::readiness::FACTS;
use super::record::{Attempt, Record};
use super::{ProcessSpec, SupervisorInner};
use crate::ports::process::{Identity, MARK};

/// All that it inherits of the server's environment, which may have secrets.
const INHERITED: [&str; 13] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "JAVA_HOME",
    "KAFKA_HOME",
    "MAINSTAY_KAFKA_HOME",
];

/// The placeholders of a command's ports, in their order.
const PORTS: [&str; 3] = ["${port}", "${port2}", "${port3}"];

/// Starts the process of `record`, and records it there and on disk. No earlier process may run.
pub async fn start(inner: &SupervisorInner, dir: &Path, record: &mut Record) -> Result<Child> {
    let count = ports_of(&record.spec);
    inner.ports.ensure_count(&mut record.ports, count, &inner.ambient)?;
    let problem = |what: &str| {
        let what = format!("{what} of instance {}", record.spec.id);
        move |error: std::io::Error| Error::unavailable(what, error)
    };
    std::fs::create_dir_all(dir).map_err(problem("the directory"))?;
    let (output, output_from) = Output::in_dir(dir).open().map_err(problem("the output"))?;
    let errors = output.try_clone().map_err(problem("the output"))?;
    kernel::files::remove(&dir.join(FACTS)).map_err(problem("the facts"))?;
    let nonce = format!("{:016x}", u64::from_le_bytes(inner.ambient.random_bytes()));
    let fill = |text: &str| filled(text, inner, dir, record);
    let words: Vec<String> = record.spec.command.iter().map(|word| fill(word)).collect();
    let (program, arguments) = words.split_first().expect("a checked command has a program");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .envs(record.spec.env.iter().map(|(name, value)| (name, fill(value))))
        .env(MARK, format!("{}:{nonce}", record.spec.id))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // Neither Ctrl-C nor the server's exit must stop it.
        .process_group(0);
    record.attempt = Some(Attempt { nonce, process: None, output_from, ready: false });
    // The mark is durable before a process carries it.
    inner.write(record.clone()).await?;
    let spawned = command
        .spawn()
        .map_err(|error| Error::unavailable(format!("`{program}` cannot be started"), error));
    let child = spawned.inspect_err(|_| record.attempt = None)?;
    if let Some(attempt) = &mut record.attempt {
        attempt.process = child.id().and_then(Identity::of_pid);
    }
    inner.write(record.clone()).await?;
    tracing::info!(instance = record.spec.id, pid = child.id(), "started an instance");
    Ok(child)
}

fn ports_of(spec: &ProcessSpec) -> usize {
    let texts = || spec.command.iter().chain(spec.env.values());
    let named = |name: &str| texts().any(|text| text.contains(name));
    // One that does not name its port has one as well: its readiness is probed there.
    PORTS.iter().rposition(|name| named(name)).map_or(1, |last| last + 1)
}

fn filled(text: &str, inner: &SupervisorInner, dir: &Path, record: &Record) -> String {
    let mut text = text
        .replace("${dir}", &dir.display().to_string())
        .replace("${id}", &record.spec.id)
        .replace("${mainstay}", &inner.executable.display().to_string());
    for (name, port) in PORTS.iter().zip(&record.ports) {
        text = text.replace(name, &port.to_string());
    }
    text
}
