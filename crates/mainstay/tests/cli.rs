//! The binary as a person and a script meet it, against a server that plays its part.

mod stage;

use kernel::Timestamp;
use kernel::change::AuditDraft;
use kernel::log::{AuditEntry, LogHeads};
use serde_json::{Value, json};
use stage::{Answer, Asked, Stage, mainstay};

fn widget(phase: &str) -> Value {
    json!({
        "key": "widget/a", "org": "acme", "owner": "alice", "name": "blue", "phase": phase,
        "labels": {"team": "core"}, "spec": {}, "status": {}, "generation": 2, "observed": 2,
        "revision": 5, "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z",
    })
}

#[test]
fn the_exit_code_is_the_class_of_the_server_s_error() {
    let classes = [
        ("terminal", 500, 1),
        ("invalid", 400, 2),
        ("unauthenticated", 401, 3),
        ("forbidden", 403, 4),
        ("not_found", 404, 5),
        ("conflict", 409, 6),
        ("transient", 503, 7),
    ];
    for (class, status, code) in classes {
        let error = json!({"error": {"class": class, "message": "so it is", "request_id": "r1"}});
        let stage = Stage::new(move |_| Answer::json(status, &error));
        let ran = mainstay(&["get", "widget/a"]).at(&stage).run();
        assert_eq!(ran.code, code, "{class}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "errors are talk, not data");
        assert!(ran.stderr.contains("so it is") && ran.stderr.contains("r1"), "{}", ran.stderr);
    }
}

#[test]
fn a_server_that_does_not_answer_is_worth_another_try_and_a_hint() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = mainstay(&["list", "widget", "--server", &format!("http://{free}")]).run();
    assert_eq!(ran.code, 7);
    assert!(
        ran.stderr.contains("refused") && ran.stderr.contains("mainstay server"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_wrong_configuration_is_invalid_and_every_mistake_is_named() {
    let ran = mainstay(&["config", "check", "--listen", "x", "--set", "driver.slotz=1"]).run();
    assert_eq!(ran.code, 2);
    for part in ["--listen", "127.0.0.1:8080", "driver.slots"] {
        assert!(ran.stderr.contains(part), "{part} is not in {}", ran.stderr);
    }
    assert_eq!(mainstay(&["config", "check"]).run().code, 0);
    let ran = mainstay(&["config", "check", "--data-dir", "/dev/null/x"]).run();
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}

#[test]
fn the_shown_configuration_is_redacted_and_says_where_it_came_from() {
    let mut shown = mainstay(&["config", "show", "-o", "json", "--set", "driver.slots=3"]);
    let ran = shown.env("MAINSTAY_DATABASE", "postgres://u:hunter2@h/d").run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("hunter2"));
    let rows: Value = serde_json::from_str(&ran.stdout).unwrap();
    let origin = |key: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
        row["origin"].as_str().unwrap().to_owned()
    };
    assert_eq!(origin("driver.slots"), "flag --set driver.slots");
    assert_eq!(origin("database"), "env MAINSTAY_DATABASE");
    assert_eq!(origin("listen"), "default");
}

#[test]
fn a_list_asks_for_what_was_wanted_and_follows_its_pages() {
    let stage = Stage::new(|asked| {
        let next = if asked.target.contains("after=7") { None } else { Some(7) };
        Answer::json(200, &json!({"objects": [widget("ready")], "next": next}))
    });
    let args = ["list", "widget", "--label", "team=core", "--phase", "ready"];
    let ran = mainstay(&args).at(&stage).env("MAINSTAY_TOKEN", "t0").run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("KEY ") && ran.stdout.contains("widget/a"), "{}", ran.stdout);
    assert!(ran.stderr.contains("--after 7"), "{}", ran.stderr);
    let asked = stage.asked();
    assert_eq!(
        asked[0].target,
        "/api/v1/objects?kind=widget&phase=ready&label=team%3Dcore&limit=50"
    );
    assert_eq!(asked[0].header("authorization"), Some("Bearer t0"));
    let ran = mainstay(&["list", "widget", "--all", "-o", "name"]).at(&stage).run();
    assert_eq!(ran.stdout, "widget/a\nwidget/a\n");
}

#[test]
fn a_wait_goes_on_until_the_phase_is_reached() {
    let stage = Stage::new(|asked| {
        let phase = if asked.number < 2 { "creating" } else { "ready" };
        Answer::json(200, &widget(phase))
    });
    let ran =
        mainstay(&["get", "widget", "a", "--wait-phase", "ready", "-o", "json"]).at(&stage).run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap()["phase"], "ready");
    assert_eq!(stage.asked().len(), 3);
    let never = Stage::new(|_| Answer::json(200, &widget("creating")));
    let args = ["get", "widget/a", "--wait-phase", "ready", "--timeout", "0s"];
    let ran = mainstay(&args).at(&never).run();
    assert_eq!(ran.code, 7);
    assert!(ran.stderr.contains("`creating`"), "{}", ran.stderr);
}

#[test]
fn following_events_resumes_after_the_last_one_that_was_seen() {
    let stage = Stage::new(|asked| match asked.number {
        0 => {
            Answer::events("id: 41\ndata: {\"sequence\":41,\"subject\":\"widget/a\"}\n\n: beat\n\n")
        }
        1 => Answer::events("id: 42\ndata: {\"sequence\":42,\"subject\":\"widget/a\"}\n\n"),
        _ => Answer::json(410, &json!({"error": {"class": "not_found", "message": "forgotten"}})),
    });
    let ran = mainstay(&["events", "--follow", "-o", "json", "--after", "40"]).at(&stage).run();
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    let seen: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!([&seen[0]["sequence"], &seen[1]["sequence"]], [41, 42]);
    let asked = stage.asked();
    assert_eq!(asked[0].header("accept"), Some("text/event-stream"));
    assert_eq!(asked[0].header("last-event-id"), Some("40"));
    assert_eq!(asked[1].header("last-event-id"), Some("41"));
    assert_eq!(asked[2].header("last-event-id"), Some("42"));
}

fn audit_log(n: i64) -> (LogHeads, Vec<AuditEntry>) {
    let mut head = LogHeads::default();
    let entry = |i| {
        let after =
            kernel::Json::stored(format!("{{\"b\": {i},  \"a\": 1}}")).expect("as written here");
        let draft = AuditDraft { actor: format!("a{i}"), after, ..AuditDraft::default() };
        head.append_audit(draft, Timestamp(i))
    };
    let entries = (0..n).map(entry).collect();
    (head, entries)
}

fn audit_stage(head: LogHeads, entries: Vec<AuditEntry>) -> Stage {
    Stage::new(move |asked| {
        if asked.target.contains("/head") {
            return Answer::json(200, &head);
        }
        let after: i64 = asked.query("after").unwrap_or("0").parse().expect("as written here");
        let page: Vec<&AuditEntry> = entries.iter().filter(|e| e.seq > after).take(2).collect();
        Answer::json(200, &json!({ "entries": [] })).with_body(
            serde_json::to_string(&std::collections::BTreeMap::from([("entries", page)]))
                .expect("as written here"),
        )
    })
}

#[test]
fn a_whole_audit_log_is_proved_and_a_damaged_one_names_its_entry() {
    let (head, entries) = audit_log(5);
    let ran = mainstay(&["audit", "verify"]).at(&audit_stage(head.clone(), entries.clone())).run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, format!("5:{}\n", head.audit_hash));
    let mut edited = entries.clone();
    edited[2].entry.outcome = "denied".into();
    let mut removed = entries.clone();
    removed.remove(3);
    let cut = entries[..4].to_vec();
    for (damaged, said) in [(edited, "entry 3"), (removed, "entry 4"), (cut, "after 4")] {
        let ran = mainstay(&["audit", "verify"]).at(&audit_stage(head.clone(), damaged)).run();
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains(said), "`{said}` is not in {}", ran.stderr);
    }
}

#[test]
fn work_shows_why_an_object_is_stuck_and_can_retry_it() {
    let stage = Stage::new(|asked| {
        if asked.method == "POST" {
            return Answer::json(200, &json!({}));
        }
        let row = json!({
            "key": "widget/a", "org": "acme", "lane": "normal", "state": "stopped", "due": null,
            "paused": false, "attempt": 3, "fence": 9, "worker": "w", "reason": "no such region",
        });
        let count = json!({"kind": "widget", "state": "stopped", "paused": false, "failing": true, "rows": 1});
        Answer::json(200, &json!({"rows": [row], "counts": [count]}))
    });
    let ran = mainstay(&["work", "--failing"]).at(&stage).run();
    assert!(
        ran.stdout.contains("stopped") && ran.stdout.contains("no such region"),
        "{}",
        ran.stdout
    );
    assert!(ran.stderr.contains("widget: 1 stopped"), "{}", ran.stderr);
    let ran = mainstay(&["work", "pause", "widget/a", "--reason", "why not"]).at(&stage).run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let asked = stage.asked();
    assert_eq!(asked[0].target, "/api/v1/work?limit=100&failing=true");
    assert_eq!(asked[1].target, "/api/v1/work/widget/a/pause");
    assert_eq!(asked[1].body, "{\"reason\":\"why not\"}");
}

#[test]
fn waiting_for_a_phase_of_what_was_deleted_ends_at_once() {
    let mut gone = widget("deleted");
    gone["deleted_at"] = json!("2020-01-02T00:00:00Z");
    let stage = Stage::new(move |_| Answer::json(200, &gone));
    let ran = mainstay(&["get", "widget/a", "--wait-phase", "ready"]).at(&stage).run();
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("widget/a was deleted"), "{}", ran.stderr);
    let ran = mainstay(&["get", "widget/a", "--wait-phase", "deleted"]).at(&stage).run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(stage.asked().len(), 2, "it asked again although nothing can come of it");
}

/// An issuer whose person confirms at the second question.
fn issuer(asked: &Asked) -> Answer {
    let base = format!("http://{}", asked.header("host").expect("as written here"));
    match asked.target.split('?').next().expect("as written here") {
        "/.well-known/openid-configuration" => Answer::json(
            200,
            &json!({
                "token_endpoint": format!("{base}/oauth/token"),
                "device_authorization_endpoint": format!("{base}/oauth/device_authorization"),
                "revocation_endpoint": format!("{base}/oauth/revoke"),
            }),
        ),
        "/oauth/device_authorization" => Answer::json(
            200,
            &json!({
                "device_code": "dc", "user_code": "ABCD-EFGH", "verification_uri": "http://v",
                "expires_in": 60, "interval": 1,
            }),
        ),
        "/oauth/revoke" => Answer::json(200, &json!({})),
        "/oauth/token" if asked.body.contains("refresh_token=off") => {
            Answer::json(200, &json!({"access_token": "acc3ss", "expires_in": 3600}))
        }
        "/oauth/token" if !asked.body.contains("device_code=dc") => {
            Answer::json(400, &json!({"error": "invalid_grant"}))
        }
        "/oauth/token" if asked.number < 3 => {
            Answer::json(400, &json!({"error": "authorization_pending"}))
        }
        "/oauth/token" => Answer::json(
            200,
            // Already worn out, so that the next command has to refresh it.
            &json!({"access_token": "old", "expires_in": 1, "refresh_token": "off"}),
        ),
        _ if asked.header("authorization") == Some("Bearer acc3ss") => {
            Answer::json(200, &widget("ready"))
        }
        _ => Answer::json(401, &json!({"error": {"class": "unauthenticated", "message": "who?"}})),
    }
}

#[test]
fn signing_in_with_a_device_is_remembered_and_refreshed() {
    let stage = Stage::new(issuer);
    let home = tempfile::tempdir().unwrap();
    let ran = mainstay(&["login", "--server", &stage.url()]).home(home.path()).run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("http://v") && ran.stderr.contains("ABCD-EFGH"), "{}", ran.stderr);
    let ran = mainstay(&["get", "widget/a", "-o", "name"]).home(home.path()).run();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "widget/a\n"), "{}", ran.stderr);
    let ran = mainstay(&["context"]).home(home.path()).run();
    assert!(ran.stdout.contains(&stage.url()) && !ran.stdout.contains("acc3ss"), "{}", ran.stdout);
    assert_eq!(mainstay(&["logout"]).home(home.path()).run().code, 0);
    let reported = stage.asked().into_iter().find(|asked| asked.target == "/oauth/revoke").unwrap();
    assert!(reported.body.contains("token=off&token_type_hint=refresh_token"), "{}", reported.body);
    let ran = mainstay(&["get", "widget/a", "--server", &stage.url()]).home(home.path()).run();
    assert_eq!(ran.code, 3, "the token is forgotten");
}

#[test]
fn signing_in_with_an_offline_token_needs_no_browser() {
    let stage = Stage::new(issuer);
    let home = tempfile::tempdir().unwrap();
    let args = ["login", "--server", &stage.url(), "--token", "off", "--context", "ci"];
    assert_eq!(mainstay(&args).home(home.path()).run().code, 0);
    assert_eq!(mainstay(&["get", "widget/a"]).home(home.path()).run().code, 0);
    let bad = ["login", "--server", &stage.url(), "--token", "stolen"];
    assert_eq!(mainstay(&bad).home(home.path()).run().code, 3);
}
