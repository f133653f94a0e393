//! Commands over the registry: one door for every transport.

use kernel::change::Write;
use kernel::command::{Envelope, Origin, Sender};
use kernel::identity::Principal;
use kernel::log::EventFilter;
use kernel::{Change, Error, Json, Key, Object, Refusal};
use serde_json::{Value, json};
use testkit::stores::Fresh;
use testkit::{on_every_store, widgets};

use crate::server::{TestResponse, TestServer};

on_every_store!(
    the_same_id_over_two_transports_is_one_command,
    a_rejected_command_stays_rejected,
    a_command_that_was_carried_out_is_not_rejected_when_it_comes_again,
    an_expected_generation_is_checked,
    events_say_which_command_led_to_them,
    many_writers_of_one_object_all_succeed,
    of_concurrent_commands_with_one_id_one_is_carried_out,
    a_command_about_a_deleted_object_does_not_find_it,
    the_state_of_a_command_is_shown_for_every_transport,
);

fn server(fresh: &Fresh) -> TestServer {
    TestServer::on_with(fresh, widgets::api::routes())
}

fn alice() -> Principal {
    let (subject, org) = ("alice".into(), "acme".into());
    Principal { subject, org, issuer: "http://localhost".into(), ..Principal::default() }
}

fn envelope(id: &str, name: &str, subject: Option<Key>, body: Value) -> Envelope {
    Envelope { id: Some(id.into()), ..Envelope::new(name, subject, Json::encode(&body)) }
}

async fn over_rest(
    server: &TestServer,
    id: &str,
    method: &str,
    path: &str,
    body: &str,
) -> TestResponse {
    let request = server.request(method, "alice", path).header("content-type", "application/json");
    let request = request.header("idempotency-key", id).body(body.to_owned().into()).unwrap();
    server.send(request).await
}

/// As the bus and schedules do.
async fn over_bus(server: &TestServer, envelope: &Envelope) -> kernel::Result<(Value, bool)> {
    let (principal, origin) = (alice(), Origin::Bus("orders".into()));
    let sender = Sender { principal: &principal, origin: &origin, request_id: "r", trace: None };
    let answer = server.app.commands().execute(&server.app, sender, envelope).await?;
    Ok((answer.reply.body.parse()?, answer.replayed))
}

async fn the_same_id_over_two_transports_is_one_command(fresh: &Fresh) {
    let server = server(fresh);
    let first =
        over_rest(&server, "k", "POST", "/api/v1/widgets", r#"{"name":"a","size":1}"#).await;
    assert_eq!(first.status, 202, "{}", first.text);
    let same = envelope("k", "widget.create", None, json!({ "size": 1, "name": "a" }));
    let (reply, replayed) = over_bus(&server, &same).await.unwrap();
    assert_eq!((&reply, replayed), (&first.body, true));
    // The other way round, and by the generic route.
    let second = envelope("k2", "widget.create", None, json!({ "name": "b" }));
    let (reply, replayed) = over_bus(&server, &second).await.unwrap();
    assert!(!replayed);
    let body = serde_json::to_string(&second).unwrap();
    let generic = server.post("alice", "/api/v1/commands", &body).await;
    assert_eq!((generic.status, &generic.body), (202, &reply));
    assert_eq!(generic.headers["idempotent-replay"], "true");
    let found = server.get("alice", "/api/v1/objects?kind=widget").await;
    assert_eq!(found.body["objects"].as_array().unwrap().len(), 2);
    // The same id for something else.
    let other = envelope("k", "widget.create", None, json!({ "name": "c" }));
    let refused = over_bus(&server, &other).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::Mismatch { .. })), "{refused}");
}

async fn a_rejected_command_stays_rejected(fresh: &Fresh) {
    let server = server(fresh);
    let (principal, origin) = (alice(), Origin::Bus("orders".into()));
    let sender = Sender { principal: &principal, origin: &origin, request_id: "r", trace: None };
    let create = envelope("k", "widget.create", None, json!({ "name": "a" }));
    let why = Error::invalid("name", "must not be a");
    server.app.commands().reject(&server.app, sender, &create, &why).await.unwrap();
    // Redelivered, it would succeed now; its sender has the refusal.
    let (reply, replayed) = over_bus(&server, &create).await.unwrap();
    assert_eq!((&reply["message"], replayed), (&"name: must not be a".into(), true));
    let events = server.store.events(0, &EventFilter::default(), 9).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, "mainstay.command.rejected");
    let audit = server.audit().await;
    assert_eq!(
        (audit[0].entry.outcome.as_str(), audit[0].entry.origin.as_str()),
        ("rejected", "bus orders")
    );
}

async fn a_command_that_was_carried_out_is_not_rejected_when_it_comes_again(fresh: &Fresh) {
    let server = server(fresh);
    let create = envelope("k", "widget.create", None, json!({ "name": "a" }));
    let (reply, _) = over_bus(&server, &create).await.unwrap();
    let (principal, origin) = (alice(), Origin::Bus("orders".into()));
    let sender = Sender { principal: &principal, origin: &origin, request_id: "r", trace: None };
    let why = Error::invalid("version", "is not known");
    let answer = server.app.commands().reject(&server.app, sender, &create, &why).await.unwrap();
    assert_eq!((answer.reply.status, answer.replayed), (202, true));
    assert_eq!(serde_json::from_str::<Value>(answer.reply.body.text()).unwrap(), reply);
    assert!(answer.subject.is_some());
    let events = server.store.events(0, &EventFilter::default(), 9).await.unwrap();
    assert_eq!(events.len(), 1, "no rejection");
}

async fn the_state_of_a_command_is_shown_for_every_transport(fresh: &Fresh) {
    let server = server(fresh);
    let state = async |id: &str| {
        let answer = server.get("alice", &format!("/api/v1/command/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    };
    let made = over_rest(&server, "rest", "POST", "/api/v1/widgets", r#"{"name":"a"}"#).await;
    let key: Key = serde_json::from_value(made.body["key"].clone()).unwrap();
    let rest = state("rest").await;
    assert_eq!((&rest["state"], &rest["status"]), (&json!("accepted"), &json!(202)));
    assert_eq!((&rest["subject"], &rest["phase"]), (&json!(key), &json!("accepted")));
    // What the driver writes when a widget is ready.
    let object = server.store.object(&key).await.unwrap().unwrap();
    let ready = Object { phase: "ready".into(), ..Object::clone(&object) };
    let settled = Change { settles: true, ..Write::transition(ready, "ready").into() };
    kernel::store::commit(&*server.store, settled, server.app.ambient.now()).await.unwrap();
    let rest = state("rest").await;
    assert_eq!((&rest["state"], &rest["phase"]), (&json!("done"), &json!("ready")));
    let events = server.get("alice", "/api/v1/events").await;
    let states: Vec<&Value> =
        events.body["events"].as_array().unwrap().iter().map(|e| &e["commandstate"]).collect();
    assert_eq!(states, ["accepted", "done"]);

    let resize = |id: &str, size: u32| {
        envelope(id, "widget.update", Some(key.clone()), json!({ "size": size }))
    };
    over_bus(&server, &resize("bus", 5)).await.unwrap();
    assert_eq!(state("bus").await["state"], "accepted");
    over_bus(&server, &resize("later", 6)).await.unwrap();
    assert_eq!(state("bus").await["state"], "superseded");
    assert_eq!(state("rest").await["state"], "done", "what is done stays done");

    let (principal, origin) = (alice(), Origin::Bus("orders".into()));
    let sender = Sender { principal: &principal, origin: &origin, request_id: "r", trace: None };
    let why = Error::invalid("name", "must not be a");
    let bad = envelope("bad", "widget.create", None, json!({ "name": "a" }));
    server.app.commands().reject(&server.app, sender, &bad, &why).await.unwrap();
    let bad = state("bad").await;
    assert_eq!((&bad["state"], &bad["status"]), (&json!("rejected"), &json!(400)));
    assert_eq!(bad["reply"]["field"], "name");

    let path = "/api/v1/command/rest";
    assert_eq!(server.get("bob", path).await.status, 404, "it is another's");
    let of_alice = format!("{path}?subject=alice");
    assert_eq!(server.get("bob", &of_alice).await.status, 403);
    assert_eq!(server.get("admin", &of_alice).await.status, 200, "an admin may");
    assert_eq!(server.get("alice", "/api/v1/command/none").await.status, 404);
}

async fn an_expected_generation_is_checked(fresh: &Fresh) {
    let server = server(fresh);
    let made = over_rest(&server, "k", "POST", "/api/v1/widgets", r#"{"name":"a"}"#).await;
    let key: Key = serde_json::from_value(made.body["key"].clone()).unwrap();
    let resize = |id: &str, size: u32, generation: i64| Envelope {
        expected_generation: Some(generation),
        ..envelope(id, "widget.update", Some(key.clone()), json!({ "size": size }))
    };
    let (reply, _) = over_bus(&server, &resize("r1", 5, 1)).await.unwrap();
    assert_eq!(reply["generation"], 2);
    let stale = over_bus(&server, &resize("r2", 6, 1)).await.unwrap_err().to_string();
    assert!(stale.contains("has generation 2, not 1"), "{stale}");
}

async fn events_say_which_command_led_to_them(fresh: &Fresh) {
    let server = server(fresh);
    let trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
    let request = server.request("POST", "alice", "/api/v1/widgets").header("traceparent", trace);
    let request = request.header("content-type", "application/json").header("idempotency-key", "k");
    let made = server.send(request.body(r#"{"name":"a"}"#.into()).unwrap()).await;
    let key: Key = serde_json::from_value(made.body["key"].clone()).unwrap();
    server.transition(key.id(), "ready").await;
    let events = server.get("alice", "/api/v1/events").await;
    for event in events.body["events"].as_array().unwrap() {
        assert_eq!(event["commandid"], "k", "{event}");
        let parent = event["traceparent"].as_str().unwrap();
        assert!(parent.starts_with(&trace[..36]), "in the caller's trace: {parent}");
    }
    assert_eq!(events.body["events"].as_array().unwrap().len(), 2);
}

async fn many_writers_of_one_object_all_succeed(fresh: &Fresh) {
    let server = server(fresh);
    let made = over_rest(&server, "k", "POST", "/api/v1/widgets", r#"{"name":"a"}"#).await;
    let key: Key = serde_json::from_value(made.body["key"].clone()).unwrap();
    let resize = |n: u32| {
        let (server, key) = (&server, key.clone());
        async move {
            let resize = envelope(&n.to_string(), "widget.update", Some(key), json!({ "size": n }));
            over_bus(server, &resize).await
        }
    };
    for replied in futures::future::join_all((1..5).map(resize)).await {
        replied.unwrap();
    }
    let widget = server.store.object(&key).await.unwrap().unwrap();
    assert_eq!(widget.generation, 5, "each of them");
}

async fn of_concurrent_commands_with_one_id_one_is_carried_out(fresh: &Fresh) {
    let server = server(fresh);
    let create = envelope("k", "widget.create", None, json!({ "name": "a" }));
    let replies = futures::future::join_all((0..8).map(|_| over_bus(&server, &create))).await;
    let replies: Vec<(Value, bool)> = replies.into_iter().map(|reply| reply.unwrap()).collect();
    assert!(replies.iter().all(|(reply, _)| *reply == replies[0].0), "{replies:?}");
    assert_eq!(replies.iter().filter(|(_, replayed)| !replayed).count(), 1);
    assert_eq!(server.store.head().await.unwrap().event_seq, 1);
}

async fn a_command_about_a_deleted_object_does_not_find_it(fresh: &Fresh) {
    let server = server(fresh);
    let made = over_rest(&server, "k", "POST", "/api/v1/widgets", r#"{"name":"a"}"#).await;
    let key: Key = serde_json::from_value(made.body["key"].clone()).unwrap();
    let path = format!("/api/v1/widgets/{}", key.id());
    let deleted = over_rest(&server, "d", "DELETE", &path, "").await;
    assert_eq!(deleted.status, 202, "{}", deleted.text);
    let again = over_rest(&server, "e", "DELETE", &path, "").await;
    assert_eq!(again.status, 409, "it is being deleted: {}", again.text);
    let mut gone = (*server.store.object(&key).await.unwrap().unwrap()).clone();
    gone.deleted_at = Some(server.now());
    let write = Some(kernel::change::Write::update(gone, "updated"));
    server.commit(kernel::Change { write, ..kernel::Change::default() }).await;
    for (method, body) in [("DELETE", ""), ("PATCH", r#"{"size":2}"#)] {
        let missing = over_rest(&server, method, method, &path, body).await;
        assert_eq!(missing.status, 404, "{method}: {}", missing.text);
    }
    let replayed = over_rest(&server, "d", "DELETE", &path, "").await;
    assert_eq!((replayed.status, replayed.body), (202, deleted.body), "the reply it had");
    // What is left to clean up is still an admin's to retry, pause and resume.
    for act in ["retry", "pause", "resume"] {
        let work = server.post("admin", &format!("/api/v1/work/{key}/{act}"), "").await;
        assert_eq!(work.status, 202, "{act}: {}", work.text);
    }
}

#[tokio::test]
async fn a_command_that_does_not_exist_or_is_not_allowed_is_refused_with_a_hint() {
    let server = TestServer::routing(widgets::api::routes(), Default::default());
    let post = async |who: &str, body: Value| {
        server.post(who, "/api/v1/commands", &body.to_string()).await
    };
    let unknown = post("alice", json!({ "type": "widget.creat" })).await;
    assert_eq!((unknown.status, unknown.error("field")), (400, "type"));
    assert!(unknown.error("message").contains("did you mean `widget.create`?"), "{}", unknown.text);
    let version = post("alice", json!({ "type": "widget.create", "version": 7 })).await;
    assert_eq!((version.status, version.error("field")), (400, "version"));
    let body = post("alice", json!({ "type": "widget.create", "body": { "nam": "x" } })).await;
    assert_eq!((body.status, body.error("field")), (400, "nam"));
    let forbidden = post("alice", json!({ "type": "work.retry", "subject": "widget/a" })).await;
    assert_eq!(forbidden.status, 403);
    let subject = post("alice", json!({ "type": "widget.delete" })).await;
    assert_eq!((subject.status, subject.error("field")), (400, "subject"));
    let missing = post("alice", json!({ "type": "widget.delete", "subject": "widget/x" })).await;
    assert_eq!(missing.status, 404);
    let listed = server.get("alice", "/api/v1/commands").await;
    let names: Vec<&str> =
        listed.body["commands"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    let all = [
        "audit.archive",
        "schedule.create",
        "schedule.delete",
        "widget.create",
        "widget.delete",
        "widget.update",
        "work.pause",
        "work.resume",
        "work.retry",
    ];
    assert_eq!(names, all);
}

#[tokio::test]
async fn what_hidden_kinds_and_presenters_leave_out_is_on_no_generic_route() {
    use kernel::Object;
    use kernel::kind::{KindInfo, Part, Presenter};
    let server = TestServer::new();
    struct WithoutSpec;
    impl Part for WithoutSpec {
        fn allows(&self, who: &Principal) -> bool {
            who.subject != "bob"
        }
        fn of(&self, object: &Object) -> Option<Object> {
            let object = Object { spec: Json::default(), ..object.clone() };
            (object.owner != "bob").then_some(object)
        }
    }
    let part = Presenter::Part(std::sync::Arc::new(WithoutSpec));
    let partly = KindInfo::new("partly", "partlies", part);
    server.app.kinds().add(partly).unwrap();
    server.app.kinds().add(KindInfo::new("secret", "secrets", Presenter::Hidden)).unwrap();
    let taken = server.app.kinds().add(KindInfo::new("secret", "x", Presenter::Whole));
    assert!(taken.unwrap_err().to_string().contains("`secret` is taken"));
    for (kind, owner) in
        [("partly", "alice"), ("partly", "bob"), ("secret", "alice"), ("unknown", "alice")]
    {
        let key = Key::new(kind, owner);
        let mut object = Object::new(key, "acme", owner, "findme", "ready", server.now());
        object.spec = Json::encode(&json!({ "password": "hunter2" }));
        let write = Some(kernel::change::Write::create(object, "created"));
        server.commit(kernel::Change { write, ..kernel::Change::default() }).await;
    }
    let keys = |response: &TestResponse| -> Vec<String> {
        let objects = response.body["objects"].as_array().unwrap();
        objects.iter().map(|object| object["key"].as_str().unwrap().to_owned()).collect()
    };
    for path in ["/api/v1/objects", "/api/v1/search?q=findme"] {
        let members = server.get("alice", path).await;
        assert_eq!(keys(&members), ["partly/alice"], "{path}");
        assert!(!members.text.contains("hunter2"), "{path}");
        assert_eq!(keys(&server.get("admin", path).await).len(), 4, "{path}");
    }
    let events = server.get("alice", "/api/v1/events").await;
    assert_eq!(events.body["events"].as_array().unwrap().len(), 1, "{}", events.text);
    assert!(!events.text.contains("hunter2"), "{}", events.text);
    // How far a step is has no object; those see it whom the part is allowed.
    let event = kernel::change::EventDraft {
        kind: "mainstay.partly.progress".into(),
        subject: Key::new("partly", "alice"),
        org: "acme".into(),
        data: Some(Json::encode(&json!({ "message": "half of it", "percent": 50 }))),
    };
    server.commit(kernel::Change { event: Some(event), ..kernel::Change::default() }).await;
    let events = server.get("alice", "/api/v1/events").await;
    assert!(events.text.contains("half of it"), "{}", events.text);
    assert!(!server.get("bob", "/api/v1/events").await.text.contains("half of it"));
    for path in ["partly/bob", "secret/alice", "unknown/alice"] {
        assert_eq!(
            server.get("alice", &format!("/api/v1/objects/{path}")).await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(server.get("bob", "/api/v1/objects/partly/alice").await.status, 404, "not allowed");
    assert!(!server.get("bob", "/api/v1/events").await.text.contains("partly/alice"));
    let one = server.get("alice", "/api/v1/objects/partly/alice").await;
    assert!(one.status == 200 && !one.text.contains("hunter2"), "{}", one.text);
}
