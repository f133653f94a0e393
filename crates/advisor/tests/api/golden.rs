//! Recorded requests are sent again: the answer has the same status, the same headers that matter and
//! the same shape. What differs was chosen, and is listed with its reason.

use axum::body::Body;
use axum::http::Request;

use super::differences::{CHOSEN, Chosen};
use super::shape;
use crate::support::recorded::Exchange;
use crate::support::server::{Answer, Server};

/// Headers that a client may rely on.
const HEADERS: [&str; 4] = [
    "content-type",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-max-age",
];

/// Sends recorded requests to a server, and collects what differs.
pub struct Replay<'a> {
    server: &'a Server,
    /// Recorded texts, such as ids of jobs, and ours.
    texts: Vec<(String, String)>,
    differing: Vec<String>,
    met: Vec<&'static str>,
    authorization: String,
}

impl<'a> Replay<'a> {
    pub fn new(server: &'a Server) -> Replay<'a> {
        let authorization = server.authorization();
        Replay { server, texts: Vec::new(), differing: Vec::new(), met: Vec::new(), authorization }
    }

    /// The requests are those of an admin.
    pub fn by_admin(self) -> Replay<'a> {
        Replay { authorization: self.server.admin(), ..self }
    }

    /// From now on `ours` takes the place of `recorded`.
    pub fn replace(&mut self, recorded: &str, ours: &str) {
        self.texts.push((recorded.to_owned(), ours.to_owned()));
    }

    pub async fn all(&mut self, names: &[&str]) {
        for name in names {
            self.one(name).await;
        }
    }

    pub async fn one(&mut self, name: &str) -> Answer {
        let recorded = Exchange::read(name);
        let mut request =
            Request::builder().method(recorded.method.as_str()).uri(self.ours(&recorded.path));
        for (name, value) in &recorded.sent {
            request = request.header(name, value);
        }
        let request = request.header("authorization", &self.authorization);
        let request = request.body(Body::from(self.ours(&recorded.body))).unwrap();
        let answer = self.server.send(request).await;
        for difference in self.compare(&recorded, &answer) {
            let chosen = CHOSEN.iter().find(|chosen| {
                (chosen.name.is_empty() || chosen.name == name) && difference.contains(chosen.shown)
            });
            match chosen {
                Some(chosen) => self.met.push(chosen.shown),
                None => {
                    let difference: String = difference.chars().take(400).collect();
                    self.differing.push(format!("{name}: {difference}"));
                }
            }
        }
        answer
    }

    fn ours(&self, text: &str) -> String {
        let replace =
            |text: String, (was, is): &(String, String)| text.replace(was.as_str(), is.as_str());
        self.texts.iter().fold(text.to_owned(), replace)
    }

    fn compare(&self, recorded: &Exchange, answer: &Answer) -> Vec<String> {
        let mut found = Vec::new();
        if recorded.status != answer.status {
            found.push(format!("status {}, ours is {}", recorded.status, answer.status));
        }
        let cors = recorded.sent.iter().any(|(name, _)| name == "Origin");
        for name in HEADERS.into_iter().filter(|name| cors || !name.starts_with("access")) {
            let (was, is) = (recorded.header(name), answer.header(name));
            if was != is {
                found.push(format!("{name}: {was:?}, ours is {is:?}"));
            }
        }
        if recorded.json().is_null() {
            if recorded.answer.trim() != answer.text.trim() {
                found.push(format!("body: {:?}, ours is {:?}", recorded.answer, answer.text));
            }
        } else if answer.body.is_null() {
            found.push(format!("body: not JSON: {:?}", answer.text));
        } else {
            found.extend(shape::differences(&recorded.json(), &answer.body));
        }
        found
    }

    /// Nothing differs but for what is listed. `expected` are those of the list that must have been met.
    pub fn finish(self, expected: &[&'static str]) {
        let differing = &self.differing;
        assert!(differing.is_empty(), "{} differences:\n{}", differing.len(), differing.join("\n"));
        for shown in expected {
            assert!(self.met.contains(shown), "{shown:?} is listed but does not differ");
        }
    }
}

/// What stands in docs/advisor.md before the list of what was chosen, which is its end.
const MARK: &str = "<!-- differences: written by a test -->\n";

/// `MAINSTAY_TEST_WRITE=1` writes the list.
#[test]
fn the_documents_list_what_was_chosen() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/advisor.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, listed) = text.split_once(MARK).unwrap();
    let mut rows: Vec<String> = Vec::new();
    for Chosen { name, why, .. } in CHOSEN {
        let name = if name.is_empty() { "all".to_owned() } else { format!("`{name}`") };
        let row = format!("| {name} | {why} |\n");
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let expected =
        format!("\n| Recorded answer | Why ours differs |\n|---|---|\n{}", rows.concat());
    if std::env::var_os("MAINSTAY_TEST_WRITE").is_some() {
        std::fs::write(path, format!("{before}{MARK}{expected}")).unwrap();
    } else {
        assert_eq!(listed, expected, "MAINSTAY_TEST_WRITE=1 writes it");
    }
}
