//! Agents that are wrong, confused or hostile: no response is a server error, nothing of others
//! changes, and correct reports repair everything.

use axum::body::Body;
use kernel::Key;
use serde_json::{Map, Value, json};
use testkit::route53::strict::Strict;
use testkit::route53::{client, zone};

use crate::agent::obedient;
use crate::callers::CLUSTER;
use crate::ledger::{self, delete, instance};
use crate::stage::{Answer, Api, DINOSAUR, KAFKA, Stage};

/// A report with a Ready condition.
fn condition(status: &str, reason: &str) -> Value {
    json!({ "conditions": [{ "type": "Ready", "status": status, "reason": reason }] })
}

/// Invalid reports.
fn nonsense() -> Vec<Value> {
    let invalid = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!("x"),
        json!([]),
        json!([[]]),
        json!({}),
    ];
    let mut all = Vec::new();
    for field in
        ["conditions", "capacity", "versions", "routes", "adminServerURI", "address", "strimzi"]
    {
        for value in &invalid {
            all.push(json!({ field: value }));
            all.push(json!({ field: [value, { "type": value, "status": value, "reason": value,
                "message": value, "prefix": value, "router": value, "version": value,
                "ready": value, "kafkaVersions": value, "kafkaIbpVersions": value }] }));
            all.push(json!({ field: { "standard": value, "kafka": value, "maxUnits": value } }));
            all.push(
                json!({ field: { "standard": { "maxUnits": value, "remainingUnits": value } } }),
            );
        }
    }
    all.extend(invalid);
    all
}

async fn object(stage: &Stage, api: Api, id: &str) -> kernel::Object {
    (*stage.store.object(&Key::new(api.name, id)).await.unwrap().unwrap()).clone()
}

/// The result of a report of one instance.
async fn report(stage: &Stage, api: Api, id: &str, value: Value) -> String {
    let path = stage.agent(api).path(&format!("/{}/status?results=true", api.plural));
    let response = stage.call("agent", "PUT", &path, &json!({ id: value })).await;
    assert_eq!(response.status, 200, "{}", response.text);
    response.body["results"][id].as_str().unwrap().to_owned()
}

fn is_refused(response: &Answer, what: &str) {
    assert!((400..500).contains(&response.status), "{what}: {} {}", response.status, response.text);
    assert!(response.code() > 0, "{what}: {}", response.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_reports_are_never_server_errors_and_change_nothing_of_others() {
    let stage = Stage::new().await;
    for api in [KAFKA, DINOSAUR] {
        let id = stage.create(api, "alice", "demo").await;
        stage.agent(api).until_listed(&id).await;
        let other = stage.create_ready(api, "bob", "other").await;
        let before = object(&stage, api, &other).await;
        for value in nonsense() {
            report(&stage, api, &id, value.clone()).await;
            for rest in ["/status".to_owned(), format!("/{}/status", api.plural)] {
                let path = stage.agent(api).path(&rest);
                let response = stage.call("agent", "PUT", &path, &value).await;
                assert!(response.status < 500, "{value}: {}", response.text);
            }
        }
        for text in ["", "[]", "5", "nul", "{", "{\"a\":", "\u{0}", &"[".repeat(100_000)] {
            let path = stage.agent(api).path(&format!("/{}/status", api.plural));
            let request = stage.request("agent", "PUT", &path).body(Body::from(text.to_owned()));
            is_refused(&stage.send(request.unwrap()).await, text.get(..1).unwrap_or_default());
        }
        assert_eq!(object(&stage, api, &other).await, before);
        stage.agent(api).make_ready(&id).await;
    }
    ledger::check(&*stage.store, &["kafka", "dinosaur"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_other_clusters_instances_change_nothing() {
    let stage = Stage::new().await;
    let ready = stage.create_ready(KAFKA, "alice", "demo").await;
    let unready = stage.create(KAFKA, "alice", "unready").await;
    stage.agent(KAFKA).until_listed(&unready).await;
    let other_kind = stage.create_ready(DINOSAUR, "alice", "demo").await;
    let all = async || {
        [
            object(&stage, KAFKA, &ready).await,
            object(&stage, KAFKA, &unready).await,
            object(&stage, DINOSAUR, &other_kind).await,
        ]
    };
    let before = all().await;
    let lies = [
        condition("True", ""),
        condition("False", "Error"),
        condition("False", "Deleted"),
        condition("False", "Rejected"),
    ];
    for lie in lies {
        let body = json!({ &ready: lie, &unready: lie, &other_kind: lie });
        let own = KAFKA.prefix.to_owned()
            + "/agent-clusters/c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2/kafkas/status";
        let response = stage.call("other-agent", "PUT", &(own + "?results=true"), &body).await;
        assert_eq!(response.status, 200, "{}", response.text);
        assert_eq!(response.body["results"][&ready], "it is not on this cluster");
        assert_eq!(response.body["results"][&unready], "it is not on this cluster");
        assert_eq!(response.body["results"][&other_kind], "it does not exist");
        let theirs = stage.agent(KAFKA).path("/kafkas/status");
        assert_eq!(stage.call("other-agent", "PUT", &theirs, &body).await.status, 404);
    }
    assert_eq!(all().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_unknown_instances_get_results_and_write_nothing() {
    let stage = Stage::new().await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_listed(&id).await;
    let before = stage.store.newest_event().await.unwrap();
    let mut body: Map<String, Value> =
        (0..5_000).map(|i| (format!("unknown-{i}"), condition("True", ""))).collect();
    let odd = ["", "/", "kafka/x", "../x", "é\u{0}", "cluster/c1"];
    body.extend(odd.map(|id| (id.to_owned(), condition("False", "Deleted"))));
    let path = stage.agent(KAFKA).path("/kafkas/status?results=true");
    let response = stage.call("agent", "PUT", &path, &Value::Object(body)).await;
    assert_eq!(response.status, 200, "{}", response.text);
    let results = response.body["results"].as_object().unwrap();
    assert_eq!(results.len(), 5_000 + odd.len());
    assert!(results.values().all(|result| result == "it does not exist"));
    assert_eq!(stage.store.newest_event().await.unwrap(), before);
    stage.agent(KAFKA).make_ready(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_values_are_truncated_or_refused() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    let long = "x".repeat(900_000);
    let broken = json!({ "conditions": [
        { "type": "Ready", "status": "False", "reason": "Error", "message": long }
    ] });
    assert_eq!(report(&stage, KAFKA, &id, broken).await, "updated");
    assert_eq!(stage.status(KAFKA, &id).await, "failed");
    let many = |value: fn(usize) -> Value| {
        (0..20_000).map(|i| (format!("k{i}"), value(i))).collect::<Map<_, _>>()
    };
    let route = json!({ "prefix": "p", "router": "r.apps.c1.example.com" });
    let version = "9".repeat(300_000);
    for value in [
        json!({ "adminServerURI": long }),
        json!({ "versions": many(|i| json!(i.to_string())) }),
        json!({ "versions": { "kafka": version, "strimzi": version, "kafkaIbp": version } }),
        json!({ "routes": vec![route; 15_000] }),
        json!({ "conditions": vec![json!({ "type": "Ready" }); 30_000] }),
        Value::Object(many(|i| json!(i))),
    ] {
        report(&stage, KAFKA, &id, value).await;
    }
    let size = object(&stage, KAFKA, &id).await.status.text().len();
    assert!(size < 32_000, "{size} bytes are kept");

    let operator = |i: usize| json!({ "version": format!("v{i}"), "ready": true, "kafkaVersions": ["1"], "kafkaIbpVersions": ["1"] });
    let operators: Vec<Value> = (0..5_000).map(operator).collect();
    let status = stage.agent(KAFKA).path("/status");
    for value in [
        json!({ "strimzi": operators }),
        json!({ "capacity": many(|_| json!({ "maxUnits": 1 })) }),
        json!({ "conditions": [{ "type": "Ready", "status": "False", "message": long }] }),
    ] {
        let response = stage.call("agent", "PUT", &status, &value).await;
        assert_eq!(response.status, 204, "{}", response.text);
    }
    let cluster = stage.store.object(&fleet::model::cluster::key(CLUSTER)).await.unwrap().unwrap();
    assert!(cluster.status.text().len() < 32_000);

    let reports = stage.agent(KAFKA).path("/kafkas/status");
    for (path, bytes) in [(status, 2 << 20), (reports, 17 << 20)] {
        let beyond = json!({ "adminServerURI": "x".repeat(bytes) });
        is_refused(&stage.call("agent", "PUT", &path, &beyond).await, "beyond the limit");
    }
    stage.agent(KAFKA).make_ready(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_out_of_order_change_no_phase() {
    let mut stage = Stage::new().await;
    stage.stop_workers().await;
    let early = stage.create(KAFKA, "alice", "early").await;
    for lie in
        [condition("False", "Deleted"), condition("True", ""), condition("False", "Suspended")]
    {
        let why = report(&stage, KAFKA, &early, lie).await;
        assert_eq!(why, "this cluster does not have it yet");
        assert_eq!(stage.status(KAFKA, &early).await, "accepted");
    }

    let stage = Stage::new().await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_listed(&id).await;
    assert_eq!(
        report(&stage, KAFKA, &id, condition("False", "Deleted")).await,
        "it should not have been deleted"
    );
    report(&stage, KAFKA, &id, condition("False", "Suspended")).await;
    assert_eq!(stage.status(KAFKA, &id).await, "provisioning");
    stage.agent(KAFKA).make_ready(&id).await;
    for lie in [
        condition("False", "Suspended"),
        condition("False", "Deleted"),
        condition("False", "Rejected"),
        condition("Unknown", ""),
    ] {
        report(&stage, KAFKA, &id, lie).await;
        assert_eq!(stage.status(KAFKA, &id).await, "ready");
    }
    // Back and forth many times.
    for _ in 0..50 {
        report(&stage, KAFKA, &id, condition("False", "Error")).await;
        assert_eq!(stage.status(KAFKA, &id).await, "failed");
        report(&stage, KAFKA, &id, condition("True", "")).await;
        assert_eq!(stage.status(KAFKA, &id).await, "ready");
    }
    assert_eq!(instance(&stage, &id).await.status.failed_reason, "");

    delete(&stage, &id).await;
    for lie in [
        condition("True", ""),
        condition("False", "Error"),
        condition("False", "Rejected"),
        condition("False", "Suspended"),
        condition("False", ""),
    ] {
        assert_eq!(report(&stage, KAFKA, &id, lie).await, "unchanged");
        assert_eq!(stage.status(KAFKA, &id).await, "deprovision");
    }
    stage.agent(KAFKA).make_gone(&id).await;
    for lie in [condition("True", ""), condition("False", "Deleted")] {
        assert_eq!(report(&stage, KAFKA, &id, lie).await, "it does not exist");
    }
    assert_eq!(stage.status(KAFKA, &id).await, "gone");
    ledger::check(&*stage.store, &["kafka"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_routes_are_not_registered_and_valid_ones_are() {
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let stage = Stage::configured(|config| {
        config.domain = zone.name.trim_end_matches('.').into();
        config.dns.zone_id = zone.id.clone();
        config.dns.endpoint = strict.endpoint().into();
        config.dns.access_key_id = "test".into();
        config.dns.secret_access_key = "test".into();
    })
    .await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_listed(&id).await;
    let route =
        |prefix: &str, router: &str| json!({ "name": "x", "prefix": prefix, "router": router });
    let own = "router-1.apps.c1.example.com";
    let lies = [
        json!([route("", "evil.example.com")]),
        json!([route("", "apps.c2.example.com")]),
        json!([route("", own), route("admin-server", "evilapps.c1.example.com")]),
        json!([route("", own), route("", "router-2.apps.c1.example.com")]),
        json!([route("a b", own)]),
        json!([route("../..", own)]),
        json!([route(&"x".repeat(1_000), own)]),
        json!([route("", "a b.apps.c1.example.com")]),
        json!([route("", &format!("{}.apps.c1.example.com", "y".repeat(900)))]),
    ];
    for routes in lies {
        let mut lie = condition("True", "");
        lie["routes"] = routes;
        report(&stage, KAFKA, &id, lie).await;
        assert_eq!(instance(&stage, &id).await.status.routes, None);
        assert_eq!(stage.status(KAFKA, &id).await, "provisioning", "it has no DNS names yet");
    }
    assert!(strict.records().is_empty());
    let honest = || {
        stage.agent(KAFKA).saying(|item| {
            strict.settle();
            Some(obedient(item))
        })
    };
    honest().make_ready(&id).await;
    assert_eq!(strict.records().len(), 3);

    // Wrong routes of a ready instance leave its records as they are.
    let mut lie = condition("True", "");
    lie["routes"] = json!([route("", "evil.example.com")]);
    assert_eq!(report(&stage, KAFKA, &id, lie).await, "unchanged");
    // New names again and again, each of them valid: all of them are removed with the instance.
    for i in 0..300 {
        let mut lie = condition("True", "");
        lie["routes"] = json!([route("", own), route(&format!("n{i}"), own)]);
        report(&stage, KAFKA, &id, lie).await;
    }
    assert!(instance(&stage, &id).await.status.names.len() < 300);
    honest().round().await;
    let routes = instance(&stage, &id).await.status.routes.unwrap();
    assert_eq!(routes.len(), 3, "the report was correct");
    delete(&stage, &id).await;
    honest().make_gone(&id).await;
    assert!(strict.records().is_empty(), "{:?}", strict.records());
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_reports_of_a_cluster_are_ignored() {
    let stage = Stage::new().await;
    let status = stage.agent(KAFKA).path("/status");
    let put = async |body: Value| stage.call("agent", "PUT", &status, &body).await;
    let post = async |name: &str| {
        stage.call("alice", "POST", &KAFKA.path("?async=true"), &json!({ "name": name })).await
    };
    for units in [json!(-5), json!(i64::MIN), json!(1e300), json!("many"), json!(null), json!(2.5)]
    {
        let body =
            json!({ "capacity": { "standard": { "maxUnits": units, "remainingUnits": units } } });
        assert_eq!(put(body).await.status, 204);
    }
    assert_eq!(post("one").await.status, 202, "the earlier capacity stays");
    let unlimited = json!({ "maxUnits": i64::MAX, "remainingUnits": i64::MAX });
    assert_eq!(put(json!({ "capacity": { "standard": unlimited } })).await.status, 204);
    assert_eq!(post("two").await.status, 202);
    assert_eq!(put(json!({ "capacity": { "standard": { "maxUnits": 0 } } })).await.status, 204);
    let full = post("three").await;
    assert_eq!((full.status, full.code()), (403, 24), "{}", full.text);

    // No version at all is refused; versions that nobody has are offered until a correct report.
    let none = json!({ "strimzi": [{ "version": "", "ready": true }] });
    is_refused(&put(none).await, "an operator without a version");
    let wild = "v999999999999999999999999.-.é";
    let wild = json!({ "version": wild, "ready": true, "kafkaVersions": [wild, ""], "kafkaIbpVersions": ["0"] });
    assert_eq!(
        put(json!({ "strimzi": [wild], "capacity": { "standard": { "maxUnits": 9 } } }))
            .await
            .status,
        204
    );
    let id = stage.create(KAFKA, "alice", "four").await;
    stage.agent(KAFKA).make_ready(&id).await;
    let unreal = json!({ "conditions": [{ "type": "Ready", "status": "True" }],
        "versions": { "kafka": "0.0.0-none", "nothing": "1", "strimzi": 5 } });
    assert_eq!(report(&stage, KAFKA, &id, unreal).await, "updated");
    assert_eq!(stage.status(KAFKA, &id).await, "ready");
    stage.agent(KAFKA).round().await;
    let repaired = instance(&stage, &id).await;
    assert_eq!(repaired.status.versions, repaired.spec.versions, "the report was correct");

    // Not ready and ready again, many times.
    for _ in 0..20 {
        for ready in ["False", "True", "Maybe"] {
            let body = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
            assert_eq!(put(body).await.status, 204);
        }
    }
    assert_eq!(stage.status(KAFKA, &id).await, "ready");
    assert_eq!(post("five").await.status, 202);
    ledger::check(&*stage.store, &["kafka"]).await;
}
