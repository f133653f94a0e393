//! The stream verbs with an operator process, and with a Mainstay server.

use serde_json::{Value, json};
use support::wait_for;

use crate::stage::{GROUP, Operator, Stage, flat, has, object, plugin, template, v1};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_runs_streams_and_carries_out_requests() {
    let Some(stage) = Stage::new().await else { return };
    stage.kubectl(&["delete", "streamclasses", "ghost"], "");
    let ok = object("StreamingJobTemplate", "prod", "quick", template("mock:ok"));
    let bad = object("StreamingJobTemplate", "prod", "broken", template("mock:fail"));
    let mut orders = v1(false);
    orders["execution"]["backfillJobTemplateRef"]["name"] = "quick".into();
    let mut failing = orders.clone();
    failing["execution"]["streamingBackend"]["changeCapture"]["jobTemplateRef"]["name"] =
        "broken".into();
    let mut lost = orders.clone();
    lost["execution"]["backfillJobTemplateRef"]["name"] = "nowhere".into();
    stage.apply(&[ok, bad, object("RichStream", "prod", "orders", orders)]);
    let mut operator = Operator::start(&stage, &[]);
    wait_for("orders to run", async || {
        stage.run(&["get", "orders", "-o", "json"]).json()["status"]["phase"] == "Running"
    })
    .await;
    let log = std::fs::read_to_string(stage.plan.dir.join("operator")).unwrap();
    has(
        &log,
        &[
            "watches  all namespaces",
            "Lease mainstay-operator",
            "health   off",
            "this replica leads",
            "started a backfill",
            "started the Job",
        ],
    );
    wait_for("what its pod says", async || {
        stage.run(&["logs", "orders"]).stdout.contains("what a pod says")
    })
    .await;
    let output = stage.ok(&["describe", "orders"]);
    has(
        &output,
        &["It runs since", "Backfill requests", "completed", "What happened", "rich (Ready)"],
    );
    assert!(!output.contains("->"), "nothing needs to change: {output}");

    has(&stage.ok(&["stop", "orders", "--wait"]), &["orders is Suspended"]);
    has(&stage.ok(&["start", "orders", "--wait"]), &["orders is Running"]);
    let before = stage.get("jobs", "orders")["metadata"]["uid"].clone();
    has(&stage.ok(&["restart", "orders", "--wait"]), &["being restarted"]);
    assert_ne!(stage.get("jobs", "orders")["metadata"]["uid"], before);
    has(&stage.ok(&["backfill", "orders", "--wait"]), &["has been backfilled"]);

    stage.apply(&[
        object("RichStream", "prod", "failing", failing),
        object("RichStream", "prod", "lost", lost),
    ]);
    wait_for("failing to fail", async || {
        stage.run(&["get", "failing", "-o", "json"]).json()["status"]["phase"] == "Failed"
    })
    .await;
    has(
        &stage.ok(&["describe", "failing"]),
        &["Its Job failed", "stream restart RichStream/failing"],
    );
    let again = stage.run(&["restart", "failing", "--wait"]);
    has(&again.stderr, &["failing"]);
    wait_for("lost to say why", async || {
        stage.ok(&["describe", "lost"]).contains("prod/nowhere that it names does not exist")
    })
    .await;

    assert_eq!(operator.stop(), Some(0));
    has(
        &stage.ok(&["describe", "orders"]),
        &["No operator is running: the last one released the Lease"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_appear_on_a_connected_server_and_are_removed() {
    let Some(stage) = Stage::new().await else { return };
    stage.apply(&[
        object("RichStream", "prod", "orders", v1(true)),
        object("FlatStream", "prod", "sales", flat(true)),
    ]);
    let _server = stage.plan.start().await;
    assert_eq!(stage.plan.run(&["login", "--local"]).code, 0);
    let token = stage.plan.run(&["token", "--subject", "operator", "--agent-of", "prod-eu"]);
    let file = stage.plan.dir.join("token");
    std::fs::write(&file, token.stdout).unwrap();
    let (url, file) = (stage.plan.url(), file.to_str().unwrap().to_owned());
    let connect = ["--connect", &url, "--connect-token-file", &file];
    let _operator =
        Operator::start(&stage, &[&connect[..], &["--set", "lease.name=ours"]].concat());
    let list = |phase: &str| {
        let listed = stage.plan.run(&["list", "stream", "--phase", phase, "-o", "json"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.json().as_array().unwrap().clone()
    };
    wait_for("both to appear", async || list("suspended").len() == 2).await;
    let found = stage.plan.run(&["search", "orders", "-o", "json"]).json();
    assert_eq!(found[0]["labels"]["cluster"], "prod-eu", "{found}");
    let key = found[0]["key"].as_str().unwrap().to_owned();
    let graph = stage.plan.client().read(&format!("/api/v1/objects/{key}/graph")).await;
    has(&graph.to_string(), &["stream-class/"]);

    has(&stage.ok(&["describe", "orders"]), &["/ours)"]);

    stage.ok(&["start", "orders"]);
    wait_for("orders to go on", async || list("suspended").len() == 1).await;
    stage.kubectl(&["delete", "flat-streams", "sales", "-n", "prod"], "");
    wait_for("sales to go", async || list("suspended").is_empty()).await;
    let events = stage.plan.run(&["events", "-o", "json"]);
    has(
        &events.stdout,
        &["mainstay.stream.created", "mainstay.stream.deleted", "mainstay.stream-class.created"],
    );
    // Without changes nothing is written.
    let before = stage.plan.run(&["events", "-o", "json"]).stdout;
    let other = object("StreamingJobTemplate", "prod", "unused", template("mock:ok"));
    stage.apply(&[other]);
    assert_eq!(stage.plan.run(&["events", "-o", "json"]).stdout, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_v1beta1_are_controlled_by_their_annotation() {
    let beta = |kind: &str, plural: &str| {
        let mut crd = plugin(kind, plural);
        crd["spec"]["versions"][0]["name"] = "v1beta1".into();
        crd
    };
    let crds = [
        beta("StreamClass", "stream-classes"),
        plugin("StreamingJobTemplate", "streaming-job-templates"),
        beta("JsonStream", "json-streams"),
    ];
    let Some(stage) = Stage::with(&crds).await else { return };
    let named =
        json!({ "apiVersion": "v1beta1", "kindRef": "JsonStream", "pluralName": "json-streams" });
    let reference = json!({ "jobTemplateRef": { "name": "standard" } });
    let mut objects = [
        object("StreamClass", "prod", "json", named),
        object("JsonStream", "prod", "orders", reference),
    ];
    for object in &mut objects {
        object["apiVersion"] = format!("{GROUP}/v1beta1").into();
    }
    stage.apply(&objects);
    let job = template("mock:hang")["spec"].clone();
    let holder = json!({ "metadata": {}, "template": { "spec": job } });
    stage.apply(&[object("StreamingJobTemplate", "prod", "standard", holder)]);
    let state =
        || stage.get("json-streams", "orders")["metadata"]["annotations"]["arcane/state"].clone();
    stage.ok(&["stop", "orders"]);
    assert_eq!(state(), "suspended");
    has(&stage.ok(&["describe", "orders"]), &["the annotation arcane/state requests it"]);
    stage.ok(&["start", "orders"]);
    assert_eq!(state(), Value::Null);
    let mut operator = Operator::start(&stage, &[]);
    wait_for("orders to run", async || {
        let stream = stage.get("json-streams", "orders");
        matches!(stream["status"]["phase"].as_str(), Some("RUNNING" | "RELOADING"))
    })
    .await;
    has(&stage.ok(&["list", "-A"]), &["orders", "JsonStream", "change-capture"]);
    stage.ok(&["stop", "orders", "--wait"]);
    assert_eq!(stage.get("json-streams", "orders")["status"]["phase"], "SUSPENDED");
    has(&stage.ok(&["backfill", "orders"]), &["requested a backfill"]);
    wait_for("a backfill", async || {
        stage.get("json-streams", "orders")["status"]["phase"] == "RELOADING"
    })
    .await;
    assert_eq!(operator.stop(), Some(0));
}
