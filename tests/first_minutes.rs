//! A new user's first minutes with the plain command line: start, sign in, look, wait, find out
//! why something does not get ahead and help it, follow what happens, prove the record.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use support::server::Ran;
use support::{Plan, wait_for};
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History};

fn plan(dir: &std::path::Path) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_e2e"), dir)
}

fn done(ran: Ran) -> Ran {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

/// Waits until a verb prints JSON of which this holds.
async fn until(plan: &Plan, args: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    wait_for(&args.join(" "), async || {
        last = done(plan.run(args)).json();
        holds(&last)
    })
    .await;
    last
}

#[tokio::test]
async fn from_nothing_to_a_ready_widget_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let url = plan.url();
    let ran = plan.run(&["list", "widget", "--server", &url]);
    assert_eq!(ran.code, 7, "nobody listens: {ran:?}");
    assert!(ran.stderr.contains("refused") && ran.stderr.contains(" server`"), "{ran:?}");

    let server = plan.start().await;
    let said = plan.log();
    for part in [url.as_str(), "kafka create", &plan.data().display().to_string()] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let ran = plan.run(&["list", "widget", "--server", &url]);
    assert_eq!(ran.code, 0, "a user who can read the key need not sign in: {ran:?}");
    let ran = plan.run_elsewhere(&["list", "widget", "--server", &url]);
    assert_eq!(ran.code, 3, "not signed in: {ran:?}");
    assert!(ran.stderr.contains(" login`"), "{ran:?}");
    done(plan.run(&["login", "--local"]));
    assert_eq!(done(plan.run(&["list", "widget", "-o", "json"])).json(), json!([]));

    let id = plan.client().create(&json!({"name": "blue", "labels": {"team": "core"}})).await;
    let key = format!("widget/{id}");
    let ran = done(plan.run(&["get", &key, "--wait-phase", "ready", "-o", "json"]));
    let got = ran.json();
    assert_eq!((&got["name"], &got["phase"]), (&json!("blue"), &json!("ready")));
    let table = done(plan.run(&["list", "widget", "--label", "team=core"])).stdout;
    assert!(table.starts_with("KEY ") && table.contains(&key) && table.contains("blue"), "{table}");
    assert_eq!(done(plan.run(&["list", "widget", "-o", "name"])).stdout.trim(), key);
    assert!(done(plan.run(&["get", "widget", &id, "-o", "yaml"])).stdout.contains("name: blue"));
    assert_eq!(done(plan.run(&["search", "blu", "-o", "json"])).json()[0]["key"], key);
    let ran = plan.run(&["get", "widget/none"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(plan.run(&["get", "widget/.."]).code, 2);

    let deleted = plan.client();
    let path = format!("/api/v1/widgets/{id}");
    let answer = deleted.send(reqwest::Method::DELETE, &path, None, None).await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.body);
    done(plan.run(&["get", &key, "--wait-phase", "deleted"]));
    assert_eq!(plan.run(&["get", &key]).code, 5, "it is gone");

    let events = done(plan.run(&["events", "-o", "json", "--object", &key])).json();
    let types: Vec<&str> =
        events.as_array().unwrap().iter().filter_map(|event| event["type"].as_str()).collect();
    let due =
        ["created", "ready", "deleting", "deleted"].map(|what| format!("mainstay.widget.{what}"));
    assert_eq!(types, due);
    let ran = done(plan.run(&["audit", "verify"]));
    let entries = done(plan.run(&["audit", "-o", "json"])).json();
    let count = entries.as_array().unwrap().len();
    assert!(ran.stdout.starts_with(&format!("{count}:")), "{ran:?}");

    let bob = done(plan.run(&["token", "--subject", "bob"])).stdout;
    assert_eq!(plan.run(&["work", "--token", bob.trim()]).code, 4, "bob is not an admin");
    assert_eq!(plan.run(&["list", "widget", "--token", "nonsense"]).code, 3);
    let (status, took) = server.stop();
    assert_eq!(status.code(), Some(0));
    assert_eq!(plan.run(&["list", "widget"]).code, 7, "it is gone");
    println!("from nothing to a widget and back; {count} audit entries, stopped in {took:?}");
}

#[tokio::test]
async fn why_a_widget_does_not_get_ahead_and_what_an_admin_can_do() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let _server = plan.start().await;
    done(plan.run(&["login", "--local"]));
    let client = plan.client();
    let create = async |body: Value| format!("widget/{}", client.create(&body).await);

    let broken = create(json!({"name": "red", "broken": "no such region"})).await;
    let stopped = ["work", "list", "--state", "stopped", "-o", "json"];
    let rows = until(&plan, &stopped, |rows| rows[0]["key"] == broken).await;
    assert!(rows[0]["reason"].as_str().unwrap().contains("no such region"), "{rows}");
    let ran = done(plan.run(&["work"]));
    assert!(ran.stdout.contains("stopped") && ran.stdout.contains("no such region"), "{ran:?}");
    let fence = rows[0]["fence"].as_i64();
    done(plan.run(&["work", "retry", &broken]));
    until(&plan, &stopped, |rows| rows[0]["fence"].as_i64() > fence).await;

    let slow = create(json!({"name": "slow", "fail_times": 1_000_000})).await;
    let of_slow = ["work", "list", "--key", &slow, "-o", "json"];
    until(&plan, &of_slow, |rows| rows[0]["attempt"].as_i64() > Some(0)).await;
    let failing = done(plan.run(&["work", "list", "--failing", "-o", "name"])).stdout;
    assert!(failing.contains(&slow), "{failing}");
    done(plan.run(&["work", "pause", &slow, "--reason", "under investigation"]));
    let rows = until(&plan, &of_slow, |rows| rows[0]["state"] != "running").await;
    assert_eq!(
        (&rows[0]["paused"], &rows[0]["reason"]),
        (&json!(true), &json!("under investigation"))
    );
    let paused = done(plan.run(&["work", "list", "--paused", "-o", "name"])).stdout;
    assert_eq!(paused.trim(), slow);
    let ran = plan.run(&["work", "retry", &slow]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("resume it first"), "{ran:?}");
    let attempt = rows[0]["attempt"].as_i64();
    done(plan.run(&["work", "resume", &slow]));
    assert_eq!(plan.run(&["work", "resume", &slow]).code, 6, "it is not paused any more");
    until(&plan, &of_slow, |rows| rows[0]["attempt"].as_i64() > attempt).await;

    for body in [json!({"name": "f", "fail_times": 2}), json!({"name": "p", "panic_times": 1})] {
        let key = create(body).await;
        done(plan.run(&["get", &key, "--wait-phase", "ready", "--timeout", "60s"]));
    }
    let ran = plan.run(&["get", &broken, "--wait-phase", "ready", "--timeout", "1s"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stderr.contains(" work"), "it says where to look: {ran:?}");
    let audit = done(plan.run(&["audit", "--target", &slow, "-o", "json"])).json();
    let acts: Vec<&str> =
        audit.as_array().unwrap().iter().filter_map(|e| e["entry"]["action"].as_str()).collect();
    assert_eq!(acts, ["work.resume", "work.pause", "widget.create"]);
    done(plan.run(&["audit", "verify"]));
    println!("stopped, retried, paused, resumed; failures and a panic were got over");
}

/// Ends with the test.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn following_events_shows_what_happens_later_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let server = plan.start().await;
    done(plan.run(&["login", "--local"]));
    let client = plan.client();
    let before = client.create(&json!({"name": "before"})).await;
    done(plan.run(&["get", "widget", &before, "--wait-phase", "ready"]));
    let mut command = plan.command(&["events", "--follow", "-o", "json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut follower = Follower(command.spawn().unwrap());
    let pipe = BufReader::new(follower.0.stdout.take().expect("it is piped"));
    let (seen, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in pipe.lines().map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).expect("each line is an event");
            if seen.send(event).is_err() {
                return;
            }
        }
    });
    // It shows what happens from when it has begun: until then, let more happen.
    let (mut made, mut first) = (0, Value::Null);
    wait_for("an event", async || {
        made += 1;
        client.create(&json!({"name": format!("later {made}")})).await;
        let shown = lines.recv_timeout(Duration::from_millis(200));
        first = shown.unwrap_or_default();
        !first.is_null()
    })
    .await;
    assert!(first["data"]["name"].as_str().unwrap().starts_with("later"), "{first}");

    let (status, _) = server.stop();
    assert_eq!(status.code(), Some(0), "a follower does not hold a server up");
    let _server = plan.start().await;
    client.create(&json!({"name": "last"})).await;
    let mut sequence = first["sequence"].as_i64().unwrap();
    let mut names = Vec::new();
    wait_for("the last event", async || {
        while let Ok(event) = lines.try_recv() {
            sequence += 1;
            assert_eq!(event["sequence"], sequence, "none is missed and none comes twice");
            names.push(event["data"]["name"].as_str().unwrap_or_default().to_owned());
        }
        names.iter().any(|name| name == "last")
    })
    .await;
    println!("followed {} events over a restart, none missed", names.len() + 1);
}

const MIB: f64 = 1024.0 * 1024.0;

/// A shop that requests ten times what it needs, and a worker whose memory limit is too small.
fn cluster() -> Cluster {
    let web = Container::new("nginx", Load::steady(0.05), Load::steady(100.0 * MIB));
    let web = web.requests(0.5, 1024.0 * MIB).limits(1.0, 1024.0 * MIB);
    let worker = Container::new("worker", Load::steady(0.2), Load::steady(200.0 * MIB));
    let worker = worker.requests(0.2, 128.0 * MIB).limits(0.5, 128.0 * MIB);
    let workloads = vec![
        Workload::new(Kind::Deployment, "web", 3, vec![web]),
        Workload::new(Kind::StatefulSet, "worker", 1, vec![worker]),
    ];
    let namespaces = vec![Namespace { name: "shop".into(), quota: None, workloads }];
    Cluster { seed: 1, namespaces }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_for_a_cluster_needs_nothing_but_its_prometheus() {
    let Some(shared) = testkit::prometheus() else { return };
    let own = shared.private().await;
    let now_s = jiff::Timestamp::now().as_second();
    own.write(&cluster(), History::two_hours(now_s)).await;
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let advise = |more: &[&str]| {
        let args = ["advise", "--prometheus", own.server.get("")];
        plan.run(&[&args[..], more].concat())
    };
    let ran = done(advise(&[]));
    for part in ["shop", "web", "nginx", "worker"] {
        assert!(ran.stdout.contains(part), "{part} is not in {ran:?}");
    }
    assert!(ran.stderr.contains("--html report.html"), "{ran:?}");
    let all = done(advise(&["-o", "json", "--wait"])).json();
    let names: Vec<&str> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["experiment_name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "prometheus-1|default|shop|web(deployment)|nginx",
            "prometheus-1|default|shop|worker(statefulset)|worker"
        ]
    );
    let container = &all[0]["kubernetes_objects"][0]["containers"][0];
    let latest = container["recommendations"]["data"].as_object().unwrap().values().next().unwrap();
    let cost = &latest["recommendation_terms"]["short_term"]["recommendation_engines"]["cost"];
    let cpu = cost["config"]["requests"]["cpu"]["amount"].as_f64().unwrap();
    assert!((cpu - 0.05).abs() < 1e-6, "{cpu}");

    let report = dir.path().join("report.html");
    let path = report.display().to_string();
    let ran = done(advise(&["-o", "csv", "--container", "nginx", "--html", &path]));
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.contains("nginx") && page.contains("<svg") && !page.contains("worker"), "{page}");
    let ran = done(advise(&["-o", "yaml", "--namespace", "sh.p"]));
    assert!(ran.stdout.trim() == "[]" && ran.stderr.contains("Nothing to do."), "{ran:?}");

    let ran = plan.run(&["advise", "--prometheus", "http://127.0.0.1:1"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stderr.contains("http://127.0.0.1:1"), "{ran:?}");
    let ran = plan.run(&["advise", "--prometheus", "localhost"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}
