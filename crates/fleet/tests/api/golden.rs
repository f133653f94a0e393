//! The recorded answers of the existing service, asked for again here: same status, code, headers
//! that matter and shape. What differs was chosen, and is listed with its reason.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use kernel::http::{self, HttpService};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::differences::{ANSWERS, FIELDS};
use crate::prometheus;
use crate::recorded::{self, Recorded};
use crate::shape;
use crate::stage::{Answer, KAFKA, Stage};

/// Instances that were there when the recording began: id, name, whether they were ready.
const INSTANCES: [(&str, &str, bool); 7] = [
    ("dbt0rlhksdudpgrqvl70", "first", true),
    ("dbt0rt1ksdudpgrqvla0", "laa1", true),
    ("dbt0rvpksdudpgrqvm30", "laa2", false),
    ("dbt0s2pksdudpgrqvnlg", "laa3", false),
    ("dbt0rt1ksdudpgrqvl90", "lba1", true),
    ("dbt0rvpksdudpgrqvm2g", "lba2", true),
    ("dbt0s2pksdudpgrqvnm0", "lba3", true),
];
/// The instance of billing model eval, which was made on the way.
const EVAL: &str = "dbt0so9ksdudpgrr044g";

const ALLOW_ORIGIN: &str = "access-control-allow-origin";

struct Replay {
    stage: Stage,
    /// The same, open to pages of every origin, as the existing service was.
    any_origin: HttpService,
    /// Of the listed fields, those that did differ.
    met: BTreeSet<&'static str>,
    /// Recorded ids, and ours.
    ids: Vec<(String, String)>,
}

impl Replay {
    async fn new() -> Replay {
        let url = prometheus::start().await;
        let mut stage = Stage::configured(|config| config.prometheus.url = url).await;
        let mut ids = Vec::new();
        // Those that are not ready come last, so that the agent says no more of them.
        let (ready, others): (Vec<_>, Vec<_>) = INSTANCES.into_iter().partition(|of| of.2);
        for (was, name, ready) in ready.into_iter().chain(others) {
            let id = stage.create(KAFKA, "alice", name).await;
            if ready {
                stage.agent(KAFKA).make_ready(&id).await;
            } else {
                stage.agent(KAFKA).until_listed(&id).await;
                let installing = json!({ &id: {
                    "conditions": [{ "type": "Ready", "status": "False", "reason": "Installing" }],
                    "versions": { "kafka": "2.8.2", "kafkaIbp": "2.8",
                        "strimzi": "strimzi-cluster-operator.v0.26.0-0" },
                }});
                assert_eq!(stage.agent(KAFKA).report(&installing).await.status, 200);
            }
            ids.push((was.to_owned(), id));
        }
        // The existing service was slow enough to be recorded between two of its steps.
        stage.stop_workers().await;
        let any = http::Config { cors_origins: vec!["*".into()], ..http::Config::default() };
        Replay { any_origin: stage.service(&any), stage, ids, met: BTreeSet::new() }
    }

    /// What was done between two recorded requests and is not recorded itself.
    async fn before(&mut self, name: &str) {
        let first = self.ours(INSTANCES[0].0);
        let laa1 = self.ours(INSTANCES[1].0);
        let user = "alice-as-admin";
        let patch = |id: &str| KAFKA.path(&format!("/{id}"));
        let admin = format!("{}/admin/kafkas/{laa1}", KAFKA.prefix);
        let number: String = name.chars().take_while(char::is_ascii_digit).collect();
        let stage = &self.stage;
        match number.as_str() {
            "087" => drop(stage.create(KAFKA, user, "gplan").await),
            "091" => {
                let eval = json!({ "name": "geval", "billing_model": "eval" });
                let id = stage.create_with(KAFKA, user, eval).await;
                self.ids.push((EVAL.to_owned(), id));
            }
            "101" => {
                let off = json!({ "reauthentication_enabled": false });
                assert_eq!(stage.call(user, "PATCH", &patch(&first), &off).await.status, 200);
            }
            "187" if name.starts_with("187-") => {
                let larger = json!({ "max_data_retention_size": "1100Gi" });
                drop(stage.call("admin-full", "PATCH", &admin, &larger).await);
            }
            "194" => {
                let path = KAFKA.path(&format!("/{first}?async=true"));
                assert_eq!(stage.call(user, "DELETE", &path, &Value::Null).await.status, 202);
            }
            "196" => {
                for i in 1..=10 {
                    stage.create(KAFKA, "race", &format!("gq{i}")).await;
                }
            }
            _ => {}
        }
    }

    fn ours(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (was, is) in &self.ids {
            text = text.replace(was, is);
        }
        let who = [
            ("user", "alice-as-admin"),
            ("other", "mallory"),
            ("noorg", "no-org"),
            ("expired", "expired"),
            ("agent", "agent"),
            ("admin", "admin-full"),
            ("race", "race"),
        ];
        for (name, caller) in who {
            text = text.replace(&format!("<{name} token>"), self.stage.token(caller));
        }
        text
    }

    /// Sends a recorded preflight to the service that is open to every origin; the other must not
    /// allow any.
    async fn ask(&mut self, recorded: &Recorded) -> Answer {
        let answer = self.send(recorded, &self.stage.router).await;
        if recorded.header(ALLOW_ORIGIN).is_none() {
            return answer;
        }
        assert_eq!(answer.header(ALLOW_ORIGIN), "", "{}", recorded.name);
        let shown = "access-control-allow-origin: only if configured";
        self.met.extend(FIELDS.iter().filter(|of| of.shown == shown).map(|of| of.field));
        self.send(recorded, &self.any_origin).await
    }

    async fn send(&self, recorded: &Recorded, service: &HttpService) -> Answer {
        let path = self.ours(&recorded.path);
        let mut request = Request::builder().method(recorded.method.as_str()).uri(path);
        for (name, value) in &recorded.sent {
            request = request.header(name, self.ours(value));
        }
        let request = request.body(Body::from(self.ours(&recorded.body))).unwrap();
        Answer::read(service.clone().oneshot(request).await.expect("infallible")).await
    }

    /// What differs between a recorded answer and ours.
    fn compare(&mut self, recorded: &Recorded, answer: &Answer) -> Vec<String> {
        let mut found = Vec::new();
        let (was, is) = ((recorded.status, recorded.code()), (answer.status, answer.code()));
        let chosen = ANSWERS.iter().find(|chosen| chosen.name == recorded.name);
        match chosen {
            Some(chosen)
                if chosen.was == status_and_code(was) && chosen.is == status_and_code(is) => {}
            Some(chosen) => {
                let (was, is) = (status_and_code(was), status_and_code(is));
                found.push(format!("listed as {} / {}, found {was} / {is}", chosen.was, chosen.is));
            }
            None if was == is => {}
            None => {
                found.push(format!("{}, ours is {}", status_and_code(was), status_and_code(is)))
            }
        }
        let mut differing = headers(recorded, answer);
        let same = chosen.is_none() && was == is;
        if same
            && recorded.header("content-encoding").is_none()
            && !recorded.name.ends_with("openapi")
        {
            differing.extend(self.bodies(recorded, answer));
        }
        for what in differing {
            match FIELDS.iter().find(|field| what.contains(field.shown)) {
                Some(field) => drop(self.met.insert(field.field)),
                None => found.push(what),
            }
        }
        found
    }

    fn bodies(&self, recorded: &Recorded, answer: &Answer) -> Vec<String> {
        let text = self.ours(&recorded.text());
        if recorded.header("content-type").is_some_and(|of| of.starts_with("text/plain")) {
            let series = |text: &str| -> Vec<String> {
                let types = text.lines().filter(|line| line.starts_with("# TYPE "));
                types.map(str::to_owned).collect()
            };
            let (was, is) = (series(&text), series(&answer.text));
            return if was == is { Vec::new() } else { vec![format!("{was:?}, ours {is:?}")] };
        }
        let was: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        shape::differences(&was, &answer.body)
    }
}

/// A status, and the number of the error if it is one.
fn status_and_code((status, code): (u16, u32)) -> String {
    if code == 0 { status.to_string() } else { format!("{status}/{code}") }
}

fn headers(recorded: &Recorded, answer: &Answer) -> Vec<String> {
    let mut found = Vec::new();
    for name in [
        "content-type",
        "www-authenticate",
        "content-encoding",
        ALLOW_ORIGIN,
        "access-control-max-age",
    ] {
        let (was, is) = (recorded.header(name).unwrap_or_default(), answer.header(name));
        if was != is {
            found.push(format!("{name}: {was:?}, ours is {is:?}"));
        }
    }
    let operation = recorded.header("x-operation-id").is_some();
    let ours = answer.header("x-operation-id");
    if operation != (ours.len() == 20) || operation == ours.is_empty() {
        found.push(format!("x-operation-id: recorded {operation}, ours is {ours:?}"));
    }
    // Ours may vary by more: every answer may be compressed.
    let all: Vec<String> = answer
        .headers
        .get_all("vary")
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(|value| value.trim().to_lowercase())
        .collect();
    let vary = recorded.header("vary").unwrap_or_default().to_lowercase();
    if !vary.is_empty() && !all.contains(&vary) {
        found.push(format!("vary: {vary:?}, ours is {all:?}"));
    } else if !vary.is_empty() && all.iter().any(|of| *of != vary) {
        found.push("vary: also accept-encoding".into());
    }
    let name = "access-control-allow-headers";
    let (was, is) = (recorded.header(name).unwrap_or_default(), answer.header(name));
    if was != is {
        let all = is.split(',').any(|of| of.eq_ignore_ascii_case(was));
        found.push(if all {
            format!("{name}: all of them")
        } else {
            format!("{name}: {was}, {is}")
        });
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_answers_are_given_again_but_for_what_is_listed() {
    let Some(all) = recorded::all() else { return };
    let mut replay = Replay::new().await;
    let mut wrong = Vec::new();
    for recorded in &all {
        replay.before(&recorded.name).await;
        let answer = replay.ask(recorded).await;
        for what in replay.compare(recorded, &answer) {
            wrong.push(format!("{}: {what}", recorded.name));
        }
    }
    for chosen in ANSWERS {
        if !all.iter().any(|recorded| recorded.name == chosen.name) {
            wrong.push(format!("{}: is listed but was not recorded", chosen.name));
        }
    }
    for field in FIELDS.iter().filter(|field| !replay.met.contains(field.field)) {
        wrong.push(format!("{}: is listed but does not differ", field.field));
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
