//! The recorded answers of the existing service: what was asked, and what it said.

use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::shared;

pub struct Recorded {
    /// The file's name, without its ending.
    pub name: String,
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub sent: Vec<(String, String)>,
    pub body: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub answer: Vec<u8>,
}

/// All of them, in the order in which they were recorded.
pub fn all() -> Option<Vec<Recorded>> {
    let dir = shared("data/golden/fleet")?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 100, "only {} recorded answers", files.len());
    Some(files.iter().map(|file| read(file)).collect())
}

fn read(file: &Path) -> Recorded {
    let bytes = std::fs::read(file).unwrap();
    let from = find(&bytes, b"\nHTTP/1.1 ").expect("an answer");
    let request = String::from_utf8(bytes[..from].to_vec()).unwrap();
    let end = find(&bytes[from..], b"\r\n\r\n").map(|at| (at, 4));
    let end = end.or_else(|| find(&bytes[from..], b"\n\n").map(|at| (at, 2)));
    let (head, rest) = match end {
        Some((at, gap)) => (&bytes[from..from + at], &bytes[from + at + gap..]),
        None => (&bytes[from..], &[][..]),
    };
    let head = String::from_utf8(head.to_vec()).unwrap();
    let mut lines = head.trim().lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
    let headers = lines.filter_map(pair).collect();
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let mut recorded = Recorded {
        name,
        method: String::new(),
        path: String::new(),
        sent: Vec::new(),
        body: String::new(),
        status,
        headers,
        answer: rest.to_vec(),
    };
    recorded.read_request(&request);
    recorded
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn pair(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(": ")?;
    Some((name.to_lowercase(), value.trim().to_owned()))
}

impl Recorded {
    fn read_request(&mut self, text: &str) {
        let mut lines = text.lines().map(|line| line.strip_prefix('>').unwrap_or(line));
        let first = lines.next().expect("a request line").trim();
        let (method, path) = first.split_once(' ').expect("a method and a path");
        (self.method, self.path) = (method.into(), path.into());
        for line in lines.by_ref() {
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            self.sent.extend(pair(line.strip_prefix("arg: ").unwrap_or(line)));
        }
        let body: Vec<&str> = lines.map(str::trim).collect();
        self.body = body.join("\n").trim().to_owned();
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.answer).into_owned()
    }

    /// The number of its error; 0 if it is none.
    pub fn code(&self) -> u32 {
        let body: Value = serde_json::from_slice(&self.answer).unwrap_or(Value::Null);
        let code = body["code"].as_str().filter(|_| self.status >= 400).unwrap_or_default();
        code.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}
