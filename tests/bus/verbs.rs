//! `mainstay bus …` against a server whose sinks are webhooks: no broker is needed.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::server::Ran;
use support::{Plan, wait_for};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request that a webhook sent.
#[derive(Debug, Clone, Default)]
struct Posted {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Posted {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("webhooks post JSON")
    }
}

/// Receives webhooks, and answers what it is set to.
struct Receiver {
    port: u16,
    status: Arc<AtomicU16>,
    posted: Arc<Mutex<Vec<Posted>>>,
}

impl Receiver {
    async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (status, posted) = (Arc::new(AtomicU16::new(204)), Arc::<Mutex<Vec<_>>>::default());
        let receiver = Receiver { port, status: status.clone(), posted: posted.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (status, posted) = (status.clone(), posted.clone());
                tokio::spawn(async move {
                    let _ = answer(stream, &status, &posted).await;
                });
            }
        });
        receiver
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn all(&self, path: &str) -> Vec<Posted> {
        let posted = self.posted.lock().unwrap();
        posted.iter().filter(|one| one.path == path).cloned().collect()
    }

    async fn wait(&self, path: &str, holds: impl Fn(&Posted) -> bool) -> Posted {
        let mut found = None;
        wait_for(&format!("a webhook at {path}"), async || {
            found = self.all(path).into_iter().find(|one| holds(one));
            found.is_some()
        })
        .await;
        found.expect("just found")
    }
}

async fn answer(
    stream: TcpStream,
    status: &AtomicU16,
    posted: &Mutex<Vec<Posted>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut one = Posted::default();
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    one.path = line.split(' ').nth(1).unwrap_or_default().into();
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        one.headers.push((name.to_lowercase(), value.into()));
    }
    let mut body = vec![0; one.header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    one.body = String::from_utf8(body).expect("text");
    posted.lock().unwrap().push(one);
    let status = status.load(Ordering::SeqCst);
    let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await
}

fn plan(dir: &Path) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_e2e"), dir).set("http.rate_per_s", 0)
}

fn done(ran: Ran) -> Ran {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

fn with_hook(plan: Plan, receiver: &Receiver) -> Plan {
    plan.set("bus.sinks.hook.webhook.url", receiver.url("/hook"))
        .set("bus.sinks.hook.webhook.secret", SECRET)
        .set("bus.sinks.hook.filter.kinds", "[\"widget\"]")
        .set("bus.sinks.hook.start", "earliest")
}

async fn create(plan: &Plan, name: &str) -> String {
    format!("widget/{}", plan.client().create(&json!({ "name": name })).await)
}

/// Whether the example of the documentation takes the request.
fn verified_by_the_documented_example(secret: &str, posted: &Posted) -> bool {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bus.md");
    let document = std::fs::read_to_string(document).expect("docs/bus.md is there");
    let example = document.split("```python\n").nth(1).expect("it has an example in Python");
    let example = example.split("```").next().expect("it ends");
    let script = format!(
        "{example}\nimport json, sys\nasked = json.load(sys.stdin)\n\
         print(verify(asked['secret'], asked['headers'], asked['body'].encode()))\n"
    );
    let headers: serde_json::Map<String, Value> =
        posted.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let asked = json!({"secret": secret, "headers": headers, "body": posted.body});
    let mut python = Command::new("python3");
    python.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("the tests need Python");
    let mut stdin = python.stdin.take().expect("it is piped");
    stdin.write_all(asked.to_string().as_bytes()).expect("it reads");
    drop(stdin);
    let said = python.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{said:?}");
    String::from_utf8_lossy(&said.stdout).trim() == "True"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_sinks_the_status_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let _server = plan.start().await;
    for verb in ["status", "sinks"] {
        let ran = done(plan.run(&["bus", verb, "--server", &plan.url()]));
        assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{ran:?}");
        assert!(ran.stderr.contains(" bus webhook create NAME --url URL`"), "{ran:?}");
        let ran = done(plan.run(&["bus", verb, "-o", "json", "--server", &plan.url()]));
        assert_eq!(ran.json(), json!([]));
    }
    let ran = plan.run(&["bus", "resume", "orders", "--server", &plan.url()]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("`orders` does not exist; there are no sinks"), "{ran:?}");
    let ran = done(plan.run(&["bus", "park", "list", "--server", &plan.url()]));
    assert!(ran.stderr.starts_with("no events are parked"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_follows_a_sink_and_helps_it() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    let plan = with_hook(plan(dir.path()), &receiver);
    let _server = plan.start().await;
    done(plan.run(&["login", "--local"]));
    let key = create(&plan, "first").await;
    let ready = |one: &Posted| one.json()["type"] == "mainstay.widget.ready";
    let posted = receiver.wait("/hook", ready).await;
    assert_eq!(posted.json()["subject"], key.as_str());
    assert!(verified_by_the_documented_example(SECRET, &posted), "{posted:?}");
    assert!(!verified_by_the_documented_example("whsec_b3RoZXI=", &posted));

    let sinks = done(plan.run(&["bus", "sinks"])).stdout;
    for part in ["hook", "webhook", "http://127.0.0.1:", "kind=widget"] {
        assert!(sinks.contains(part), "{part} is not in {sinks}");
    }
    assert_eq!(done(plan.run(&["bus", "sinks", "-o", "name"])).stdout, "hook\n");
    let status = done(plan.run(&["bus", "status"]));
    assert!(status.stdout.starts_with("SINK ") && status.stdout.contains("running"), "{status:?}");
    assert!(status.stderr.starts_with("the newest event is "), "{status:?}");

    // What the receiver never takes is parked, and sent again on demand.
    receiver.answer(413);
    let large = create(&plan, "large").await;
    let parked = || done(plan.run(&["bus", "park", "list", "-o", "json"])).json();
    wait_for("two parked events", async || parked().as_array().is_some_and(|p| p.len() == 2)).await;
    assert_eq!(parked()[0]["reason"], "the receiver answered 413");
    let ran = done(plan.run(&["bus", "park", "list", "hook"]));
    assert!(ran.stdout.contains("413") && ran.stderr.contains(" bus resume SINK`"), "{ran:?}");
    assert!(done(plan.run(&["bus", "status"])).stderr.contains(" bus park list`"));
    let ran = done(plan.run(&["bus", "resume", "hook"]));
    assert!(
        ran.stderr.contains("sent 0 of 2 parked events again, the rest was refused"),
        "{ran:?}"
    );
    receiver.answer(204);
    let before = receiver.all("/hook").len();
    let ran = done(plan.run(&["bus", "resume", "hook"]));
    assert!(ran.stderr.contains("hook is running; sent 2 parked events again\n"), "{ran:?}");
    let again = receiver.all("/hook").split_off(before);
    assert!(again.iter().all(|one| one.json()["subject"] == large.as_str()), "{again:?}");
    receiver.answer(413);
    create(&plan, "unwanted").await;
    wait_for("two parked events", async || parked().as_array().is_some_and(|p| p.len() == 2)).await;
    receiver.answer(204);
    let ran = done(plan.run(&["bus", "resume", "sink/hook", "--discard", "-o", "json"]));
    assert_eq!((&ran.json()["phase"], &ran.json()["parked"]), (&json!("running"), &json!([])));
    assert!(ran.stderr.contains("forgot 2 parked events"), "{ran:?}");

    let ran = done(plan.run(&["bus", "replay", "hook", "--from", "1"]));
    assert!(ran.stderr.contains("sending events from 1 on to hook, in epoch 1"), "{ran:?}");
    receiver.wait("/hook", |one| one.header("webhook-id").starts_with("hook_1_")).await;
    let again = |one: &Posted| one.json()["epoch"] == 1 && one.json()["subject"] == large.as_str();
    receiver.wait("/hook", again).await;
    let ran = plan.run(&["bus", "replay", "hook", "--from", "9000000"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("from: must be the number of an event that is kept"), "{ran:?}");
    let ran = plan.run(&["bus", "resume", "huk"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("there are: hook"), "{ran:?}");
    let ran = plan.run(&["bus", "webhook", "delete", "hook"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("take it out there first"), "{ran:?}");
    let bob = done(plan.run(&["token", "--subject", "bob"])).stdout;
    let ran = plan.run(&["bus", "resume", "hook", "--token", bob.trim()]);
    assert_eq!(ran.code, 5, "sinks of the configuration are the operators': {ran:?}");
}

/// The value of a metric of the sink `hook`; of one that is not there, nothing.
async fn metric(plan: &Plan, name: &str) -> Option<f64> {
    let answer = plan.client().get("/metrics").await.ok()?;
    let begin = format!("mainstay_bus_{name}{{sink=\"hook\"}} ");
    answer.body.as_str()?.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok())
}

async fn is_degraded(plan: &Plan) -> bool {
    let health = plan.client().read("/api/v1/self/liveliness?type=detailed").await;
    let checks = health["checks"].as_array().expect("they are listed");
    let of_hook = checks.iter().find(|check| check["name"] == "sink hook").expect("it is there");
    let degraded = health["status"] == "degraded";
    assert_eq!(of_hook["status"] == "failed", degraded, "{health}");
    degraded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_lags_is_degraded_and_its_metrics_say_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    receiver.answer(500);
    let plan = with_hook(plan(dir.path()), &receiver).set("bus.webhooks.backoff_max_ms", 1000);
    let _server = plan.start().await;
    for name in ["a", "b"] {
        create(&plan, name).await;
    }
    wait_for("it fails", async || metric(&plan, "failures_total").await > Some(0.0)).await;
    wait_for("it is degraded", async || is_degraded(&plan).await).await;
    assert_eq!(metric(&plan, "up").await, Some(0.0));
    assert!(metric(&plan, "lag_events").await >= Some(2.0));
    assert!(metric(&plan, "lag_seconds").await > Some(0.0));
    let ready = plan.client().get("/api/v1/self/readiness").await.unwrap();
    assert_eq!(ready.status, 200, "requests are served all the same");
    receiver.answer(413);
    wait_for("they are parked", async || metric(&plan, "parked_events").await >= Some(2.0)).await;
    receiver.answer(204);
    let before = metric(&plan, "delivered_total").await;
    create(&plan, "c").await;
    wait_for("it is delivered", async || metric(&plan, "delivered_total").await > before).await;
    wait_for("it is well", async || !is_degraded(&plan).await).await;
    wait_for("no lag", async || metric(&plan, "lag_events").await == Some(0.0)).await;
    assert_eq!(metric(&plan, "up").await, Some(1.0));
    assert_eq!(metric(&plan, "lag_seconds").await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_creates_a_webhook_and_verifies_what_it_sends() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    let plan = plan(dir.path()).set("outbound.allow_targets", "[\"127.0.0.1\"]");
    let _server = plan.start().await;
    done(plan.run(&["login", "--local"]));
    let (url, create_hook) = (receiver.url("/user"), ["bus", "webhook", "create"]);
    let args = ["builds", "--url", &url, "--type", "mainstay.widget.re*", "--mode", "binary"];
    let ran = done(plan.run(&[&create_hook[..], &args].concat()));
    let secret = ran.stdout.lines().find_map(|line| line.strip_prefix("secret  ")).expect("shown");
    assert!(secret.starts_with("whsec_") && ran.stderr.contains("not shown again"), "{ran:?}");
    let key = create(&plan, "a").await;
    let posted = receiver.wait("/user", |one| one.header("ce-subject") == key).await;
    assert_eq!(posted.header("ce-type"), "mainstay.widget.ready");
    assert_eq!(posted.json()["name"], "a");
    assert!(verified_by_the_documented_example(secret, &posted), "{posted:?}");
    let sinks = done(plan.run(&["bus", "sinks"])).stdout;
    assert!(sinks.contains("local") && sinks.contains("type=mainstay.widget.re*"), "{sinks}");

    assert_eq!(plan.run(&[&create_hook[..], &args].concat()).code, 6, "the name is taken");
    let ran = plan.run(&[&create_hook[..], &["x", "--url", "http://10.0.0.1/"]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("url: ") && ran.stderr.contains("a private address"), "{ran:?}");
    let ran = done(plan.run(&["bus", "webhook", "delete", "builds"]));
    assert!(ran.stderr.contains("is deleted"), "{ran:?}");
    assert_eq!(plan.run(&["bus", "webhook", "delete", "builds"]).code, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_command_went_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let _server = plan.start().await;
    let (client, token, url) = (plan.client(), plan.token(), plan.url());
    let body = json!({"name": "a"});
    let path = "/api/v1/widgets";
    let answer = client.send(reqwest::Method::POST, path, Some("order/1"), Some(&body)).await;
    let key = answer.unwrap().body["key"].as_str().unwrap().to_owned();
    let ask = |id: &str, more: &[&str]| {
        let args = ["bus", "command", id, "--server", &url, "--token", &token];
        plan.run(&[&args[..], more].concat())
    };
    let mut last = Value::Null;
    wait_for("the command is done", async || {
        last = done(ask("order/1", &["-o", "json"])).json();
        last["state"] == "done"
    })
    .await;
    assert_eq!((&last["subject"], &last["phase"]), (&json!(key), &json!("ready")));
    let table = done(ask("order/1", &[])).stdout;
    assert!(table.starts_with("ID ") && table.contains("done") && table.contains(&key), "{table}");
    let ran = ask("order/2", &[]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("command order/2 does not exist"), "{ran:?}");
    let other = ["--subject", "orders", "--issuer", "bus"];
    assert_eq!(ask("order/1", &other).code, 5, "ids belong to their senders");
}
