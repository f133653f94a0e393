//! Agents that are wrong, confused, or hostile: no answer is our fault, nothing of others changes,
//! and once the truth is told everything is where it should be.

use axum::body::Body;
use fleet::model::instance::Instance;
use kernel::Key;
use serde_json::{Map, Value, json};
use testkit::route53::strict::Strict;
use testkit::route53::{client, zone};

use crate::agent::obedient;
use crate::callers::CLUSTER;
use crate::ledger;
use crate::stage::{Answer, Api, DINOSAUR, KAFKA, Stage};

/// The Ready condition of an instance.
fn says(status: &str, reason: &str) -> Value {
    json!({ "conditions": [{ "type": "Ready", "status": status, "reason": reason }] })
}

/// What is wrong with each of these is for whoever reads it to find out.
fn nonsense() -> Vec<Value> {
    let wrong = [
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
        for value in &wrong {
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
    all.extend(wrong);
    all
}

async fn object(stage: &Stage, api: Api, id: &str) -> kernel::Object {
    (*stage.store.object(&Key::new(api.name, id)).await.unwrap().unwrap()).clone()
}

async fn instance(stage: &Stage, id: &str) -> Instance {
    Instance::from_object(&object(stage, KAFKA, id).await).unwrap()
}

/// What came of a report on one instance.
async fn told(stage: &Stage, api: Api, id: &str, says: Value) -> String {
    let path = stage.agent(api).path(&format!("/{}/status?results=true", api.plural));
    let answer = stage.call("agent", "PUT", &path, &json!({ id: says })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["results"][id].as_str().unwrap().to_owned()
}

fn is_refused(answer: &Answer, what: &str) {
    assert!((400..500).contains(&answer.status), "{what}: {} {}", answer.status, answer.text);
    assert!(answer.code() > 0, "{what}: {}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_never_our_fault_and_changes_nothing_of_others() {
    let stage = Stage::new().await;
    for api in [KAFKA, DINOSAUR] {
        let id = stage.create(api, "alice", "demo").await;
        stage.agent(api).until_listed(&id).await;
        let other = stage.create_ready(api, "bob", "other").await;
        let before = object(&stage, api, &other).await;
        for value in nonsense() {
            told(&stage, api, &id, value.clone()).await;
            for rest in ["/status".to_owned(), format!("/{}/status", api.plural)] {
                let path = stage.agent(api).path(&rest);
                let answer = stage.call("agent", "PUT", &path, &value).await;
                assert!(answer.status < 500, "{value}: {}", answer.text);
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
    ledger::is_right(&*stage.store, &["kafka", "dinosaur"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_is_not_its_own_an_agent_can_say_nothing() {
    let stage = Stage::new().await;
    let ready = stage.create_ready(KAFKA, "alice", "demo").await;
    let young = stage.create(KAFKA, "alice", "young").await;
    stage.agent(KAFKA).until_listed(&young).await;
    let other_kind = stage.create_ready(DINOSAUR, "alice", "demo").await;
    let all = async || {
        [
            object(&stage, KAFKA, &ready).await,
            object(&stage, KAFKA, &young).await,
            object(&stage, DINOSAUR, &other_kind).await,
        ]
    };
    let before = all().await;
    let lies = [
        says("True", ""),
        says("False", "Error"),
        says("False", "Deleted"),
        says("False", "Rejected"),
    ];
    for lie in lies {
        let body = json!({ &ready: lie, &young: lie, &other_kind: lie });
        let own = KAFKA.prefix.to_owned()
            + "/agent-clusters/c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2/kafkas/status";
        let answer = stage.call("other-agent", "PUT", &(own + "?results=true"), &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.body["results"][&ready], "it is not on this cluster");
        assert_eq!(answer.body["results"][&young], "it is not on this cluster");
        assert_eq!(answer.body["results"][&other_kind], "it does not exist");
        let theirs = stage.agent(KAFKA).path("/kafkas/status");
        assert_eq!(stage.call("other-agent", "PUT", &theirs, &body).await.status, 404);
    }
    assert_eq!(all().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_unknown_instances_are_answered_one_by_one_and_write_nothing() {
    let stage = Stage::new().await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_listed(&id).await;
    let before = stage.store.newest_event().await.unwrap();
    let mut body: Map<String, Value> =
        (0..5_000).map(|i| (format!("unknown-{i}"), says("True", ""))).collect();
    let odd = ["", "/", "kafka/x", "../x", "é\u{0}", "cluster/c1"];
    body.extend(odd.map(|id| (id.to_owned(), says("False", "Deleted"))));
    let path = stage.agent(KAFKA).path("/kafkas/status?results=true");
    let answer = stage.call("agent", "PUT", &path, &Value::Object(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let results = answer.body["results"].as_object().unwrap();
    assert_eq!(results.len(), 5_000 + odd.len());
    assert!(results.values().all(|result| result == "it does not exist"));
    assert_eq!(stage.store.newest_event().await.unwrap(), before);
    stage.agent(KAFKA).make_ready(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_enormous_is_cut_short_or_refused() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    let long = "x".repeat(900_000);
    let broken = json!({ "conditions": [
        { "type": "Ready", "status": "False", "reason": "Error", "message": long }
    ] });
    assert_eq!(told(&stage, KAFKA, &id, broken).await, "updated");
    assert_eq!(stage.status(KAFKA, &id).await, "failed");
    let many = |of: fn(usize) -> Value| {
        (0..20_000).map(|i| (format!("k{i}"), of(i))).collect::<Map<_, _>>()
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
        told(&stage, KAFKA, &id, value).await;
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
        let answer = stage.call("agent", "PUT", &status, &value).await;
        assert_eq!(answer.status, 204, "{}", answer.text);
    }
    let cluster = stage.store.object(&fleet::model::cluster::key(CLUSTER)).await.unwrap().unwrap();
    assert!(cluster.status.text().len() < 32_000);

    let beyond = json!({ "adminServerURI": "x".repeat(2 << 20) });
    for path in [status, stage.agent(KAFKA).path("/kafkas/status")] {
        is_refused(&stage.call("agent", "PUT", &path, &beyond).await, "beyond the limit");
    }
    stage.agent(KAFKA).make_ready(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_out_of_order_moves_nothing() {
    let mut stage = Stage::new().await;
    stage.stop_workers().await;
    let early = stage.create(KAFKA, "alice", "early").await;
    for lie in [says("False", "Deleted"), says("True", ""), says("False", "Suspended")] {
        let why = told(&stage, KAFKA, &early, lie).await;
        assert_eq!(why, "this cluster was not told of it yet");
        assert_eq!(stage.status(KAFKA, &early).await, "accepted");
    }

    let stage = Stage::new().await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_listed(&id).await;
    assert_eq!(
        told(&stage, KAFKA, &id, says("False", "Deleted")).await,
        "it should not have been deleted"
    );
    told(&stage, KAFKA, &id, says("False", "Suspended")).await;
    assert_eq!(stage.status(KAFKA, &id).await, "provisioning");
    stage.agent(KAFKA).make_ready(&id).await;
    for lie in [
        says("False", "Suspended"),
        says("False", "Deleted"),
        says("False", "Rejected"),
        says("Unknown", ""),
    ] {
        told(&stage, KAFKA, &id, lie).await;
        assert_eq!(stage.status(KAFKA, &id).await, "ready");
    }
    // Back and forth, for as long as it likes.
    for _ in 0..50 {
        told(&stage, KAFKA, &id, says("False", "Error")).await;
        assert_eq!(stage.status(KAFKA, &id).await, "failed");
        told(&stage, KAFKA, &id, says("True", "")).await;
        assert_eq!(stage.status(KAFKA, &id).await, "ready");
    }
    assert_eq!(instance(&stage, &id).await.status.failed_reason, "");

    let path = KAFKA.path(&format!("/{id}?async=true"));
    assert_eq!(stage.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
    for lie in [
        says("True", ""),
        says("False", "Error"),
        says("False", "Rejected"),
        says("False", "Suspended"),
        says("False", ""),
    ] {
        assert_eq!(told(&stage, KAFKA, &id, lie).await, "unchanged");
        assert_eq!(stage.status(KAFKA, &id).await, "deprovision");
    }
    stage.agent(KAFKA).make_gone(&id).await;
    for lie in [says("True", ""), says("False", "Deleted")] {
        assert_eq!(told(&stage, KAFKA, &id, lie).await, "it does not exist");
    }
    assert_eq!(stage.status(KAFKA, &id).await, "gone");
    ledger::is_right(&*stage.store, &["kafka"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_that_lie_are_not_registered_and_the_true_ones_are() {
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
        let mut lie = says("True", "");
        lie["routes"] = routes;
        told(&stage, KAFKA, &id, lie).await;
        assert_eq!(instance(&stage, &id).await.status.routes, None);
        assert_eq!(stage.status(KAFKA, &id).await, "provisioning", "it has no names yet");
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

    // A lie about what is ready leaves its names as they are.
    let mut lie = says("True", "");
    lie["routes"] = json!([route("", "evil.example.com")]);
    assert_eq!(told(&stage, KAFKA, &id, lie).await, "unchanged");
    // Ever new names, each of them possible: all of them go with it.
    for i in 0..300 {
        let mut lie = says("True", "");
        lie["routes"] = json!([route("", own), route(&format!("n{i}"), own)]);
        told(&stage, KAFKA, &id, lie).await;
    }
    assert!(instance(&stage, &id).await.status.names.len() < 300);
    honest().round().await;
    let routes = instance(&stage, &id).await.status.routes.unwrap();
    assert_eq!(routes.len(), 3, "the truth was told");
    let path = KAFKA.path(&format!("/{id}?async=true"));
    assert_eq!(stage.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
    honest().make_gone(&id).await;
    assert!(strict.records().is_empty(), "{:?}", strict.records());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_cannot_have_is_not_believed_of_it() {
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
    assert_eq!(post("one").await.status, 202, "what was known before still is");
    let of_all = json!({ "maxUnits": i64::MAX, "remainingUnits": i64::MAX });
    assert_eq!(put(json!({ "capacity": { "standard": of_all } })).await.status, 204);
    assert_eq!(post("two").await.status, 202);
    assert_eq!(put(json!({ "capacity": { "standard": { "maxUnits": 0 } } })).await.status, 204);
    let full = post("three").await;
    assert_eq!((full.status, full.code()), (403, 24), "{}", full.text);

    // No version at all is refused; versions that nobody has are offered until the truth is told.
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
    assert_eq!(told(&stage, KAFKA, &id, unreal).await, "updated");
    assert_eq!(stage.status(KAFKA, &id).await, "ready");
    stage.agent(KAFKA).round().await;
    let seen = instance(&stage, &id).await;
    assert_eq!(seen.status.versions, seen.spec.versions, "the truth was told");

    // Not ready, and ready again, as often as it likes.
    for _ in 0..20 {
        for ready in ["False", "True", "Maybe"] {
            let body = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
            assert_eq!(put(body).await.status, 204);
        }
    }
    assert_eq!(stage.status(KAFKA, &id).await, "ready");
    assert_eq!(post("five").await.status, 202);
    ledger::is_right(&*stage.store, &["kafka"]).await;
}
