//! A server made of one function, and the binary run against it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde::Serialize;

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Counts from 0.
    pub number: usize,
    pub method: String,
    /// Path and query.
    pub target: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        let pairs = self.target.split_once('?')?.1.split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, v)| v)
    }
}

pub struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    pub fn json<T: Serialize>(status: u16, body: &T) -> Answer {
        let body = serde_json::to_string(body).expect("it serialises");
        Answer { status, kind: "application/json", body }
    }

    pub fn events(body: &str) -> Answer {
        Answer { status: 200, kind: "text/event-stream", body: body.into() }
    }

    pub fn with_body(self, body: String) -> Answer {
        Answer { body, ..self }
    }
}

/// Answers until the test's process ends.
pub struct Stage {
    at: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stage {
    pub fn new(answer: impl Fn(&Asked) -> Answer + Send + 'static) -> Stage {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let at = listener.local_addr().expect("it is bound");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let number = all.lock().expect("no holder panics").len();
                let Some(asked) = read(&stream, number) else { continue };
                all.lock().expect("no holder panics").push(asked.clone());
                let Answer { status, kind, body } = answer(&asked);
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        Stage { at, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no holder panics").clone()
    }
}

fn read(stream: &TcpStream, number: usize) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().expect("a number"))];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { number, method, target, headers, body: String::from_utf8(body).ok()? })
}

pub struct Run {
    command: Command,
}

pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The binary with an environment of its own: nothing of this machine's decides a test.
pub fn mainstay(args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.args(args).env_clear().env("XDG_CONFIG_HOME", "/nonexistent");
    Run { command }
}

impl Run {
    pub fn at(&mut self, stage: &Stage) -> &mut Run {
        self.env("MAINSTAY_SERVER", &stage.url())
    }

    pub fn env(&mut self, name: &str, value: &str) -> &mut Run {
        self.command.env(name, value);
        self
    }

    pub fn home(&mut self, dir: &Path) -> &mut Run {
        self.env("XDG_CONFIG_HOME", &dir.display().to_string())
    }

    pub fn run(&mut self) -> Ran {
        let output = self.command.output().expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}
