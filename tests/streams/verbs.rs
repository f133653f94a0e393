//! The stream verbs with only an API server.

use std::path::Path;

use serde_json::json;
use support::{Plan, wait_for};

use crate::stage::{Stage, flat, has, object, v1};

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_found_changed_and_explained_without_a_server_or_an_operator() {
    let Some(stage) = Stage::new().await else { return };
    has(&stage.ok(&["list"]), &["no such stream in namespace prod", "GhostStream"]);
    stage.apply(&[
        object("FlatStream", "prod", "orders", flat(false)),
        object("FlatStream", "prod", "both", flat(false)),
        object("RichStream", "prod", "both", v1(false)),
        object("RichStream", "prod", "rich", v1(true)),
    ]);
    let listed = stage.run(&["list", "-o", "json"]);
    let names: Vec<&str> = listed.json().as_array().unwrap().iter().map(|_| "").collect();
    assert_eq!(names.len(), 4, "{listed:?}");
    has(&stage.ok(&["list", "-A"]), &["orders", "RichStream", "change-capture", "ghost-streams"]);
    assert!(!stage.ok(&["list", "--class", "rich"]).contains("orders"));

    let several = stage.run(&["get", "both"]);
    assert_eq!(several.code, 2, "{several:?}");
    has(&several.stderr, &["FlatStream/both", "RichStream/both"]);
    assert_eq!(stage.run(&["get", "rich/both", "-o", "json"]).json()["kind"], "RichStream");
    let missing = stage.run(&["get", "nothing"]);
    assert_eq!(missing.code, 5, "{missing:?}");
    has(&missing.stderr, &["nothing", "prod", "GhostStream", "CRD is not installed"]);

    has(&stage.ok(&["stop", "orders"]), &["FlatStream/orders is being suspended"]);
    assert_eq!(stage.get("flat-streams", "orders")["spec"]["suspended"], true);
    let output = stage.ok(&["describe", "orders"]);
    has(
        &output,
        &["spec.suspended is true", "stream start FlatStream/orders -n prod", "No operator"],
    );
    has(
        &stage.ok(&["start", "orders", "rich"]),
        &["orders is being resumed", "rich is being resumed"],
    );
    assert_eq!(stage.get("flat-streams", "orders")["spec"]["suspended"], false);
    assert_eq!(stage.get("rich-streams", "rich")["spec"]["execution"]["suspended"], false);
    has(&stage.ok(&["restart", "orders"]), &["being restarted"]);
    let restart =
        &stage.get("flat-streams", "orders")["metadata"]["annotations"]["mainstay.io/restart"];
    assert!(restart.is_string(), "{restart}");

    stage.phase("rich-streams", "rich", "Failed", "The stream has failed: exit code 1.");
    let output = stage.run(&["describe", "rich", "-o", "json"]).json();
    let codes: Vec<&str> =
        output["reasons"].as_array().unwrap().iter().map(|r| r["code"].as_str().unwrap()).collect();
    has(&codes.join(" "), &["class-not-ready", "failed"]);
    let logs = stage.run(&["logs", "rich"]);
    assert_eq!(logs.code, 5, "{logs:?}");
    has(&logs.stderr, &["has no pod"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_backfill_is_the_exit_code() {
    let Some(stage) = Stage::new().await else { return };
    stage.apply(&[object("RichStream", "prod", "orders", v1(false))]);
    let bad = stage.run(&["backfill", "orders", "--payload", "[1]"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    let made = stage.run(&["backfill", "orders", "--payload", "{\"a\": {\"b\": 1}}", "-o", "json"]);
    let made = made.json();
    assert_eq!(
        made["spec"],
        json!({
            "streamClass": "rich", "streamId": "orders", "completed": false, "payload": { "a": { "b": 1 } },
        })
    );
    has(made["metadata"]["name"].as_str().unwrap(), &["orders-backfill-"]);
    stage.kubectl(&["delete", "bfr", "--all", "-n", "prod"], "");

    let late = stage.run(&["backfill", "orders", "--wait", "--timeout", "1s"]);
    assert_eq!(late.code, 7, "{late:?}");
    has(&late.stderr, &["No operator is running"]);
    stage.kubectl(&["delete", "bfr", "--all", "-n", "prod"], "");

    // The test plays the operator: completes, then fails, then deletes the request.
    for (patch, code, said) in [
        (Some(json!({ "spec": { "completed": true } })), 0, "has been backfilled"),
        (
            Some(json!({ "status": { "phase": "Failed", "conditions": [{
            "type": "Error", "status": "True", "reason": "No", "message": "no such class",
            "lastTransitionTime": "2026-11-16T07:00:00Z",
        }] } })),
            6,
            "no such class",
        ),
        (None, 6, "was deleted"),
    ] {
        let mut command =
            stage.plan.command(&["stream", "backfill", "orders", "--wait", "-n", "prod"]);
        command.arg("--kubeconfig").arg(&stage.kubeconfig);
        let log = stage.plan.dir.join("waiting");
        command.stderr(std::fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        wait_for("a request", async || {
            stage.kubectl(&["get", "bfr", "-n", "prod", "-o", "name"], "").contains('/')
        })
        .await;
        let name = stage.kubectl(&["get", "bfr", "-n", "prod", "-o", "name"], "");
        let name = name.trim();
        match patch {
            Some(patch) => {
                let status = patch.get("status").is_some();
                let mut args = vec!["patch", name, "-n", "prod", "--type=merge"];
                let patch = patch.to_string();
                args.extend(["-p", &patch]);
                args.extend(status.then_some("--subresource=status"));
                stage.kubectl(&args, "");
            }
            None => drop(stage.kubectl(&["delete", name, "-n", "prod"], "")),
        }
        let ended = child.wait().unwrap();
        let output = std::fs::read_to_string(&log).unwrap();
        assert_eq!(ended.code(), Some(code), "{output}");
        has(&output, &[said]);
        stage.kubectl(&["delete", "bfr", "--all", "-n", "prod"], "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downtime_suspends_many_streams_and_resumes_the_same_ones() {
    let Some(stage) = Stage::new().await else { return };
    stage.apply(&[
        object("FlatStream", "prod", "sales-a", flat(false)),
        object("FlatStream", "prod", "sales-off", flat(true)),
        object("RichStream", "prod", "sales-b", v1(false)),
        object("RichStream", "prod", "other", v1(false)),
    ]);
    let bad = stage.run(&["downtime", "declare", "a b", "--prefix", "x"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    let dry = stage.ok(&["downtime", "declare", "move", "--prefix", "sales-", "--dry-run"]);
    has(&dry, &["2 streams would be", "sales-off is suspended already"]);
    assert_eq!(stage.get("flat-streams", "sales-a")["spec"]["suspended"], false);
    has(
        &stage.ok(&["downtime", "declare", "move", "--prefix", "sales-"]),
        &["2 streams are being"],
    );
    let one = stage.get("rich-streams", "sales-b");
    assert_eq!(one["spec"]["execution"]["suspended"], true);
    assert_eq!(one["metadata"]["labels"]["arcane.sneaksanddata.com/downtime"], "move");
    let begin = &one["metadata"]["annotations"]["arcane.sneaksanddata.com/downtime-begin-ts"];
    assert!(begin.as_str().unwrap().ends_with('Z'), "{begin}");
    has(&stage.ok(&["describe", "sales-b"]), &["part of the downtime move", "downtime stop move"]);
    has(&stage.ok(&["downtime", "list", "-A"]), &["move", "2", "prod"]);
    let details = stage.ok(&["downtime", "details", "move"]);
    has(&details, &["sales-a", "sales-b"]);
    assert!(!details.contains("other") && !details.contains("sales-off"), "{details}");
    has(&stage.ok(&["downtime", "stop", "move"]), &["resumed 2 streams"]);
    let one = stage.get("rich-streams", "sales-b");
    assert_eq!(one["spec"]["execution"]["suspended"], false);
    assert!(one["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty));
    assert_eq!(stage.get("flat-streams", "sales-off")["spec"]["suspended"], true);
    assert_eq!(stage.run(&["downtime", "stop", "move"]).code, 5);
    has(&stage.ok(&["downtime", "list"]), &["there is no downtime"]);
}

#[test]
fn without_a_kubeconfig_the_error_names_the_options() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path());
    let ran = plan.run(&["stream", "list"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    has(&ran.stderr, &["--kubeconfig"]);
    let no_file = plan.run(&["stream", "list", "--kubeconfig", "/no/such/file"]);
    assert_eq!(no_file.code, 2, "{no_file:?}");
    assert!(Path::new("/no/such/file").exists() || no_file.stderr.contains("/no/such/file"));
}
