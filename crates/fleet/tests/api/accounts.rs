//! Service accounts at our own issuer.

use kernel::log::{AuditFilter, EventFilter};
use serde_json::{Value, json};

use crate::callers::ORG;
use crate::sign_in::{claims, token};
use crate::stage::{Answer, KAFKA, Stage};

pub fn path(rest: &str) -> String {
    format!("{}/service_accounts{rest}", KAFKA.prefix)
}

pub async fn make(stage: &Stage, who: &str, name: &str) -> Answer {
    stage.call(who, "POST", &path(""), &json!({ "name": name })).await
}

pub fn text<'a>(answer: &'a Answer, field: &str) -> &'a str {
    answer.body[field].as_str().unwrap_or_else(|| panic!("no {field}: {}", answer.text))
}

async fn names(stage: &Stage, who: &str) -> Vec<String> {
    let list = stage.get(who, &path("")).await;
    assert_eq!(list.status, 200, "{}", list.text);
    list.items().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_made_signs_in_is_read_and_goes() {
    let stage = Stage::new().await;
    let body = json!({ "name": "robot", "description": "For the shop, v1." });
    let made = stage.call("alice", "POST", &path(""), &body).await;
    assert_eq!(made.status, 202, "{}", made.text);
    assert_eq!(
        keys(&made.body),
        [
            "id",
            "kind",
            "href",
            "name",
            "description",
            "client_id",
            "client_secret",
            "owner",
            "created_by",
            "created_at"
        ]
    );
    let (id, secret) = (text(&made, "id"), text(&made, "client_secret"));
    let client = text(&made, "client_id");
    assert_eq!(client, format!("srvc-acct-{id}"));
    assert_eq!(text(&made, "href"), path(&format!("/{id}")));

    let said = claims(&token(&stage, client, secret).await.unwrap());
    assert_eq!(said["clientId"], client);
    assert_eq!((&said["org_id"], &said["rh-org-id"]), (&json!(ORG), &json!(ORG)));
    assert_eq!(said["rh-user-id"], "acc-alice");
    assert_eq!(said["is_org_admin"], false);
    assert_eq!(token(&stage, client, "wrong").await, None);
    assert_eq!(token(&stage, "srvc-acct-x", secret).await, None);

    let list = stage.get("bob", &path("")).await;
    assert_eq!(keys(&list.body), ["kind", "items"]);
    assert_eq!(list.body["kind"], "ServiceAccountList");
    assert_eq!(
        keys(&list.items()[0]),
        [
            "id",
            "kind",
            "href",
            "client_id",
            "name",
            "owner",
            "created_by",
            "created_at",
            "description"
        ]
    );
    let one = stage.get("bob", &path(&format!("/{id}"))).await;
    assert_eq!((one.status, one.body.get("client_secret")), (200, None));
    assert_eq!(one.body["description"], "For the shop, v1.");

    let gone = stage.call("alice", "DELETE", &path(&format!("/{id}")), &Value::Null).await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    assert_eq!(token(&stage, client, secret).await, None);
    assert_eq!(names(&stage, "alice").await, Vec::<String>::new());
    let again = stage.call("alice", "DELETE", &path(&format!("/{id}")), &Value::Null).await;
    assert_eq!((again.status, again.code()), (404, 113));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_can_be_of_one_client() {
    let stage = Stage::new().await;
    let one = make(&stage, "alice", "one").await;
    make(&stage, "alice", "two").await;
    assert_eq!(names(&stage, "bob").await, ["one", "two"]);
    let of = |client: &str| path(&format!("?client_id={client}"));
    let found = stage.get("bob", &of(text(&one, "client_id"))).await;
    assert_eq!(found.items().len(), 1);
    let none = stage.get("mallory", &of(text(&one, "client_id"))).await;
    assert_eq!((none.status, none.body["items"].clone()), (200, json!([])));
    let bad = stage.get("bob", &of("zzz")).await;
    assert_eq!((bad.status, bad.code()), (400, 40));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_gives_another_secret_and_ends_the_old_one() {
    let stage = Stage::new().await;
    let made = make(&stage, "alice", "robot").await;
    let (id, client) = (text(&made, "id"), text(&made, "client_id"));
    let reset = path(&format!("/{id}/reset_credentials"));
    let new = stage.call("alice", "POST", &reset, &Value::Null).await;
    assert_eq!(new.status, 200, "{}", new.text);
    let (old, new) = (text(&made, "client_secret"), text(&new, "client_secret"));
    assert_ne!(old, new);
    assert!(token(&stage, client, new).await.is_some());
    assert_eq!(token(&stage, client, old).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_counts_the_organisation_and_holds_under_a_crowd() {
    let stage = Stage::configured(|config| config.service_accounts_max = 5).await;
    let all = futures::future::join_all((0..20).map(|i| {
        let who = if i % 2 == 0 { "alice" } else { "bob" };
        let stage = &stage;
        async move { make(stage, who, &format!("robot-{i}")).await }
    }))
    .await;
    let made: Vec<&Answer> = all.iter().filter(|answer| answer.status == 202).collect();
    assert_eq!(made.len(), 5);
    let refused = all.iter().find(|answer| answer.status != 202).unwrap();
    assert_eq!((refused.status, refused.code()), (403, 115));
    assert!(text(refused, "reason").contains("whole organisation"), "{}", refused.text);
    assert_eq!(make(&stage, "mallory", "own").await.status, 202, "another organisation has room");
    let id = path(&format!("/{}", text(made[0], "id")));
    assert_eq!(stage.call("carol", "DELETE", &id, &Value::Null).await.status, 204);
    assert_eq!(make(&stage, "bob", "in-its-place").await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_and_admins_of_the_organisation_change_it() {
    let stage = Stage::new().await;
    let made = make(&stage, "alice", "robot").await;
    let one = path(&format!("/{}", text(&made, "id")));
    let reset = format!("{one}/reset_credentials");
    for (who, expected) in [("bob", (403, 4)), ("mallory", (403, 4)), ("carol", (200, 0))] {
        let answer = stage.call(who, "POST", &reset, &Value::Null).await;
        assert_eq!((answer.status, answer.code()), expected, "{who}: {}", answer.text);
    }
    for (who, expected) in [("bob", (403, 4)), ("mallory", (403, 4)), ("carol", (204, 0))] {
        let answer = stage.call(who, "DELETE", &one, &Value::Null).await;
        assert_eq!((answer.status, answer.code()), expected, "{who}: {}", answer.text);
    }
    let made = make(&stage, "alice", "robot").await;
    let one = path(&format!("/{}", text(&made, "id")));
    let hidden = stage.get("mallory", &one).await;
    assert_eq!((hidden.status, hidden.code()), (404, 113));
    for bad in ["/zzz", "/zzz/reset_credentials"] {
        let method = if bad == "/zzz" { "GET" } else { "POST" };
        let answer = stage.call("alice", method, &path(bad), &Value::Null).await;
        assert_eq!((answer.status, answer.code()), (400, 40), "{}", answer.text);
    }
    let long = stage.get("alice", &path(&format!("/{}", "a".repeat(37)))).await;
    assert_eq!((long.status, long.code()), (400, 34));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_on_record_and_no_secret_is_anywhere() {
    let stage = Stage::new().await;
    let made = make(&stage, "alice", "robot").await;
    let id = text(&made, "id");
    let reset = path(&format!("/{id}/reset_credentials"));
    let new = stage.call("alice", "POST", &reset, &Value::Null).await;
    stage.call("alice", "DELETE", &path(&format!("/{id}")), &Value::Null).await;
    let target = Some(format!("service-account/{id}"));
    let filter = AuditFilter { target, ..AuditFilter::default() };
    let audit = stage.store.audit(&filter, 100).await.unwrap();
    let actions: Vec<&str> = audit.iter().map(|one| one.entry.action.as_str()).collect();
    let expected =
        ["create", "reset_credentials", "delete"].map(|what| format!("service-account.{what}"));
    assert_eq!(actions, expected);
    assert!(audit.iter().all(|one| one.entry.actor == "alice"));
    let events = stage.store.events(0, &EventFilter::default(), 1000).await.unwrap();
    let of = events.iter().filter(|event| event.subject.kind() == "service-account");
    let kinds: Vec<&str> = of.map(|event| event.kind.as_str()).collect();
    let expected =
        ["ready", "reset", "deleted"].map(|what| format!("mainstay.service-account.{what}"));
    assert_eq!(kinds, expected);
    let kept = format!("{audit:?} {events:?}");
    for secret in [text(&made, "client_secret"), text(&new, "client_secret")] {
        assert!(!kept.contains(secret));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_canary_of_an_instance_signs_in_until_it_is_gone() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    let desired = stage.agent(KAFKA).list().await;
    let canary = &desired.items()[0]["spec"]["serviceAccounts"][0];
    let client = canary["principal"].as_str().unwrap();
    let secret = canary["password"].as_str().unwrap();
    assert_eq!(client, format!("canary-{id}"));
    let token_of_it = token(&stage, client, secret).await.unwrap();
    assert_eq!(claims(&token_of_it)["rh-org-id"], ORG);
    let refused = stage.get(&token_of_it, &KAFKA.path("")).await;
    assert_eq!(refused.status, 401, "it is for the data plane: {}", refused.text);
    let gone = KAFKA.path(&format!("/{id}?async=true"));
    assert_eq!(stage.call("alice", "DELETE", &gone, &Value::Null).await.status, 202);
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(token(&stage, client, secret).await, None);
}
