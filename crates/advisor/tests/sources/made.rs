//! Each kind of authentication works, its secrets are nowhere to be seen, and what cannot be used is
//! refused when it is made.

use std::io::Write;
use std::sync::Arc;

use advisor::model::user_source::{DATASOURCE, SETTINGS};
use kernel::log::{AuditFilter, EventFilter};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::stores::{self, Fresh};

use super::{SECRET, delete, made, message, open_config, put};
use crate::support::server::{Server, config};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, Seen, StandIn};

testkit::on_every_store!(
    every_authentication_works_and_no_secret_is_stored_in_the_open,
    a_name_is_the_organisations_own,
    a_name_of_the_configuration_cannot_be_taken,
);

/// A Prometheus that knows each kind of authentication, and an issuer of tokens.
async fn guarded_source() -> StandIn {
    StandIn::new(|seen| {
        if seen.path == "/token" {
            assert_eq!(seen.form["client_secret"], "hunter2-client");
            return Reply::Json(json!({ "access_token": "hunter2-granted", "expires_in": 300 }));
        }
        match (seen.header("authorization"), seen.header("x-key")) {
            ("Basic YWRhOmh1bnRlcjItYmFzaWM=", "")
            | ("Bearer hunter2-bearer", "")
            | ("Bearer hunter2-granted", "")
            | ("Api-Key hunter2-api", "")
            | ("", "hunter2-api") => Small::of(3).reply(seen),
            _ => Reply::error(401, "unauthorized", "who are you?"),
        }
    })
    .await
}

/// A name, and how it authenticates.
fn authentications(url: &str) -> [(&'static str, Value); 5] {
    [
        ("basic", json!({ "type": "basic", "username": "ada", "password": "hunter2-basic" })),
        ("bearer", json!({ "type": "bearer", "token": "hunter2-bearer" })),
        ("api-key", json!({ "type": "api_key", "key": "hunter2-api" })),
        ("own-header", json!({ "type": "api_key", "header": "X-Key", "key": "hunter2-api" })),
        (
            "oauth2",
            json!({ "type": "oauth2", "token_url": format!("{url}/token"), "client_id": "c",
                "client_secret": "hunter2-client" }),
        ),
    ]
}

async fn every_authentication_works_and_no_secret_is_stored_in_the_open(fresh: &Fresh) {
    let source = guarded_source().await;
    let server = Server::start(fresh, &open_config()).await;
    let none = put(&server, "none", &json!({ "url": source.url })).await;
    assert_eq!(none.status, 400);
    assert!(
        message(&none).contains("401") && message(&none).contains("check the auth"),
        "{none:?}"
    );
    for (name, authentication) in authentications(&source.url) {
        let settings = json!({ "url": source.url, "authentication": authentication });
        let created = put(&server, name, &settings).await;
        assert_eq!(created.status, 201, "{}", created.text);
        let shown = json!({ "name": name, "provider": "prometheus", "url": source.url,
            "authenticationConfig": { "type": created.body["authenticationConfig"]["type"] } });
        assert_eq!(created.body, shown);
        let job = server.create(json!({ "datasource": name })).await.unwrap();
        let job = server.completed(&job).await;
        assert_eq!((job.status.processed, job.status.failed), (3, 0), "{name}");
        nowhere(&created.text);
    }
    let listed = server.get("/datasources").await;
    assert_eq!(listed.body["datasources"].as_array().unwrap().len(), 5);
    nowhere(&listed.text);
    search(&server).await;
    // The secrets are there, and only there.
    for object in server.objects(DATASOURCE).await {
        let (info, data) = server.app.store.blob(&object.key, SETTINGS).await.unwrap().unwrap();
        assert!(info.sealed);
        nowhere(&String::from_utf8_lossy(&data));
        let opened = server.app.blobs.get(server.app.store.as_ref(), &object.key, SETTINGS).await;
        let opened = String::from_utf8(opened.unwrap().unwrap().data).unwrap();
        assert!(opened.contains(SECRET), "{opened}");
        assert_eq!(delete(&server, &object.name).await.status, 200);
        let gone = server.app.store.blobs(&object.key).await.unwrap();
        assert!(gone.is_empty(), "{gone:?}");
    }
    search(&server).await;
}

fn nowhere(text: &str) {
    assert!(!text.contains(SECRET), "{text}");
    // Nor as a list of bytes.
    let bytes = format!("{:?}", SECRET.as_bytes());
    assert!(!text.contains(bytes.trim_matches(['[', ']'])), "{text}");
}

/// Searches everything that the store shows.
async fn search(server: &Server) {
    let store = &server.app.store;
    let mut after = 0;
    loop {
        let page = store.events(after, &EventFilter::default(), 1000).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        page.iter().for_each(|event| nowhere(&format!("{event:?}")));
    }
    let audit = store.audit(&AuditFilter::default(), 1000).await.unwrap();
    let about = audit.iter().filter(|entry| format!("{entry:?}").contains("datasource.put"));
    assert_eq!(about.count(), 5);
    audit.iter().for_each(|entry| nowhere(&format!("{entry:?}")));
    for kind in [DATASOURCE, "bulk-job", "bulk-shard", "experiment"] {
        server.objects(kind).await.iter().for_each(|object| nowhere(&format!("{object:?}")));
    }
}

#[derive(Clone, Default)]
struct Logs(Arc<Mutex<Vec<u8>>>);

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// In a process of its own: what other threads log, and whether they do, is of no matter there.
#[test]
fn no_log_has_a_secret() {
    const ALONE: &str = "MAINSTAY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        return runtime.unwrap().block_on(search_logs());
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "sources::made::no_log_has_a_secret"]).env(ALONE, "yes");
    let ran = alone.output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && printed.contains("1 passed"), "{printed}");
}

/// On one thread, whose log is taken at the most talkative level.
async fn search_logs() {
    let logs = Logs::default();
    let writer = logs.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let source = guarded_source().await;
    let fresh = stores::memory().await.unwrap();
    let server = Server::start(&fresh, &open_config()).await;
    for (name, authentication) in authentications(&source.url) {
        let settings = json!({ "url": source.url, "authentication": authentication });
        assert_eq!(put(&server, name, &settings).await.status, 201);
        let job = server.create(json!({ "datasource": name })).await.unwrap();
        server.completed(&job).await;
        // Wrong ones, and such that are not even read.
        let wrong = json!({ "url": source.url,
            "authentication": { "type": "bearer", "token": "hunter2-wrong" } });
        assert_eq!(put(&server, "wrong", &wrong).await.status, 400);
        let bad = json!({ "url": source.url, "password": "hunter2-lost" });
        assert_eq!(put(&server, "wrong", &bad).await.status, 400);
        let cut = r#"{ "url": "http://p.example", "authentication": { "password": "hunter2"#;
        assert_eq!(server.call("PUT", "/api/v1/advisor/datasources/x", cut).await.status, 400);
        assert_eq!(delete(&server, name).await.status, 200);
    }
    let logs = String::from_utf8(logs.0.lock().clone()).unwrap();
    for recorded in ["/api/v1/advisor/datasources/wrong", "Prometheus query_range"] {
        assert!(logs.contains(recorded), "this level is recorded: {recorded}");
    }
    let leaked = logs.lines().find(|line| line.contains(SECRET));
    assert_eq!(leaked, None);
    logs.lines().for_each(nowhere);
}

async fn a_name_is_the_organisations_own(fresh: &Fresh) {
    let answers = |value: &'static str| {
        move |seen: &Seen| Small { value: value.into(), ..Small::of(1) }.reply(seen)
    };
    let (ours, theirs) = (StandIn::new(answers("0.25")).await, StandIn::new(answers("0.5")).await);
    let server = Server::start(fresh, &open_config()).await;
    made(&server, "own", &ours.url).await;
    let globex = server.authorization_of("globex");
    let path = "/api/v1/advisor/datasources/own";
    let call = async |method: &str, path: &str, body: &str| {
        server.call_as(&globex, method, path, body).await
    };
    let unseen = call("GET", "/datasources", "").await;
    assert_eq!(unseen.body["datasources"], json!([]));
    let unseen = call("GET", "/datasources?name=own", "").await;
    assert_eq!(unseen.status, 400);
    let unseen = call("POST", "/bulk", r#"{ "datasource": "own" }"#).await;
    assert!(message(&unseen).contains("there are: none"), "{unseen:?}");
    assert_eq!(call("DELETE", path, "").await.status, 404);
    let body = json!({ "url": theirs.url }).to_string();
    assert_eq!(call("PUT", path, &body).await.status, 201, "the name is free there");
    let listed = call("GET", "/datasources", "").await;
    assert_eq!(listed.body["datasources"][0]["url"], theirs.url);
    let shown = server.get("/datasources?name=own").await;
    assert_eq!(shown.body["datasources"][0]["url"], ours.url);
    let before = theirs.seen().len();
    server.completed(&server.create(json!({ "datasource": "own" })).await.unwrap()).await;
    assert_eq!(theirs.seen().len(), before);
    assert_eq!(call("DELETE", path, "").await.status, 200);
    assert_eq!(server.get("/datasources?name=own").await.status, 200);

    // Nobody else's, and not of those who are of no organisation.
    let admin = server.admin();
    let body = json!({ "url": ours.url }).to_string();
    let refused = server.call_as(&admin, "PUT", path, &body).await;
    assert_eq!(refused.status, 403);
    assert!(message(&refused).contains("advisor.open_as.org"), "{refused:?}");
}

async fn a_name_of_the_configuration_cannot_be_taken(fresh: &Fresh) {
    let source = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let configured = config(&[("p", &source.url)]);
    let configured = advisor::Config { private_addresses: true, ..configured };
    let server = Server::start(fresh, &configured).await;
    for answer in
        [put(&server, "p", &json!({ "url": source.url })).await, delete(&server, "p").await]
    {
        assert_eq!(answer.status, 409);
        assert!(message(&answer).contains("is in the configuration"), "{answer:?}");
    }
    made(&server, "q", &source.url).await;
    drop(server);
    // One that the configuration takes later is the configuration's.
    let other = StandIn::new(|seen| Small::of(2).reply(seen)).await;
    let server = Server::start(fresh, &config(&[("q", &other.url)])).await;
    let listed = server.get("/datasources").await;
    assert_eq!(listed.body["datasources"].as_array().unwrap().len(), 1);
    assert_eq!(listed.body["datasources"][0]["url"], other.url);
    let job = server.completed(&server.create(json!({ "datasource": "q" })).await.unwrap()).await;
    assert_eq!(job.status.total, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_refused_with_its_field() {
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &open_config()).await;
    let web = StandIn::new(|_| Reply::Text(200, Vec::new(), "<html>".into())).await;
    let prometheus = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let with = |field: &str, value: Value| {
        let mut source = json!({ "url": prometheus.url });
        source[field] = value;
        source
    };
    let bearer = json!({ "type": "bearer", "token": { "file": "/etc/passwd" } });
    let basic = json!({ "type": "basic", "username": "a:b", "password": "hunter2" });
    let header = json!({ "type": "api_key", "header": "a b", "key": "hunter2" });
    for (source, part) in [
        (json!([]), "expected an object"),
        (json!({}), "url: is required"),
        (json!({ "url": web.url }), "does not answer: the answer is not one of Prometheus"),
        (json!({ "url": "http://127.0.0.1:9" }), "url: `own` does not answer: "),
        (json!({ "url": "http://u:hunter2@p.example" }), "url: must not contain credentials"),
        (json!({ "url": "ftp://p.example" }), "url: must begin with"),
        (with("name", json!("other")), "name: must be `own`"),
        (with("authentication", bearer), "authentication.token: expected the secret itself"),
        (with("authentication", basic), "authentication.username: must be given, and without"),
        (with("authentication", header), "authentication.header: is not a header's name"),
        (with("tls", json!({ "ca": "hunter2" })), "tls.ca: there is no certificate"),
        (with("tls", json!({ "client_cert": "hunter2" })), "tls.client_key: must be given"),
        (with("tls", json!({ "ca_file": "/etc/hosts" })), "tls.ca_file: unknown field"),
        (with("query_timeout_s", json!(0)), "query_timeout_s: expected a number from 1 to 600"),
    ] {
        let answer = put(&server, "own", &source).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(message(&answer).contains(part), "{part}: {}", answer.text);
        assert!(!answer.text.contains(SECRET), "{}", answer.text);
    }
    for name in ["a|b", "a%20b", "%2e%2e", &"x".repeat(101)] {
        let answer = put(&server, name, &json!({ "url": prometheus.url })).await;
        assert!(answer.status == 400 && message(&answer).starts_with("name: "), "{}", answer.text);
    }
    assert!(server.objects(DATASOURCE).await.is_empty());
    assert_eq!(delete(&server, "own").await.status, 404);

    for number in 0..100 {
        made(&server, &format!("s{number}"), &prometheus.url).await;
    }
    let more = put(&server, "s100", &json!({ "url": prometheus.url })).await;
    assert_eq!(more.status, 409);
    assert!(message(&more).contains("has 100 data sources"), "{}", more.text);
    made(&server, "s7", &prometheus.url).await;
    assert_eq!(delete(&server, "s7").await.status, 200);
    made(&server, "s100", &prometheus.url).await;
}
