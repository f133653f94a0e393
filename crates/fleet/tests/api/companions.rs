//! What the existing command line calls besides a kind's own API: who the caller is, their quota, and
//! service accounts where the existing sign-in system has them.

use serde_json::{Value, json};

use crate::callers::{ORG, OTHER_ORG};
use crate::sign_in::token;
use crate::stage::{Answer, KAFKA, Stage};

const ACCOUNTS: &str = "/auth/realms/mainstay/apis/service_accounts/v1";
const TERMS: &str = "/api/authorizations/v1/self_terms_review";
const ACCOUNT: &str = "/api/accounts_mgmt/v1/current_account";

fn quota(org: &str) -> String {
    format!("/api/accounts_mgmt/v1/organizations/{org}/quota_cost")
}

async fn make(stage: &Stage, who: &str, body: Value) -> Answer {
    stage.call(who, "POST", ACCOUNTS, &body).await
}

fn error(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.body["error"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_is_made_signs_in_gets_a_new_secret_and_goes() {
    let stage = Stage::new().await;
    let body = json!({ "name": "Shop robot", "description": "for the shop" });
    let made = make(&stage, "alice", body).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let text = |answer: &Answer, field: &str| answer.body[field].as_str().unwrap().to_owned();
    let (id, client, secret) = (text(&made, "id"), text(&made, "clientId"), text(&made, "secret"));
    assert_eq!(client, format!("srvc-acct-{id}"));
    assert_eq!(
        (&made.body["name"], &made.body["createdBy"]),
        (&json!("Shop robot"), &json!("alice"))
    );
    assert!(made.body["createdAt"].as_i64().unwrap() > 1_700_000_000, "seconds");
    assert!(token(&stage, &client, &secret).await.is_some());

    // The same account in the kind's own API.
    let path = format!("{}/service_accounts/{id}", KAFKA.prefix);
    assert_eq!(stage.get("bob", &path).await.body["client_id"], client);

    let one = format!("{ACCOUNTS}/{id}");
    let read = stage.get("bob", &one).await;
    assert_eq!(read.status, 200, "{}", read.text);
    assert!(read.body.get("secret").is_none(), "{}", read.text);
    let reset = format!("{one}/resetSecret");
    let others = stage.call("bob", "POST", &reset, &Value::Null).await;
    assert_eq!(error(&others), (403, "service_account_access_invalid"));
    let renewed = stage.call("alice", "POST", &reset, &Value::Null).await;
    assert_eq!(renewed.status, 200, "{}", renewed.text);
    assert!(token(&stage, &client, &secret).await.is_none());
    assert!(token(&stage, &client, &text(&renewed, "secret")).await.is_some());

    let gone = stage.call("carol", "DELETE", &one, &Value::Null).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    let missing = stage.get("alice", &one).await;
    assert_eq!(error(&missing), (404, "service_account_not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn service_accounts_are_listed_in_parts_and_only_ones_own() {
    let stage = Stage::configured(|config| config.service_accounts_max = 3).await;
    for name in ["a", "b", "c"] {
        assert_eq!(make(&stage, "alice", json!({ "name": name })).await.status, 200);
    }
    let full = make(&stage, "bob", json!({ "name": "d" })).await;
    assert_eq!(error(&full), (403, "service_account_limit_exceeded"));
    let names = async |who: &str, query: &str| -> Vec<String> {
        let list = stage.get(who, &format!("{ACCOUNTS}{query}")).await;
        assert_eq!(list.status, 200, "{}", list.text);
        let names = list.body.as_array().unwrap().iter();
        names.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut all = names("bob", "").await;
    all.sort();
    assert_eq!(all, ["a", "b", "c"]);
    let parts = [names("bob", "?first=0&max=2").await, names("bob", "?first=2&max=2").await];
    assert_eq!((parts[0].len(), parts[1].len()), (2, 1));
    assert!(names("mallory", "").await.is_empty());

    for (wrong, field) in [
        (json!({}), "name"),
        (json!({ "name": "" }), "name"),
        (json!({ "name": "n".repeat(51) }), "name"),
        (json!({ "name": "a\nb" }), "name"),
        (json!({ "name": 7 }), "name"),
        (json!({ "name": "a", "description": "d".repeat(256) }), "description"),
    ] {
        let refused = make(&stage, "alice", wrong.clone()).await;
        assert_eq!(error(&refused), (400, "invalid_field"), "{wrong}");
        let said = refused.body["error_description"].as_str().unwrap();
        assert!(said.contains(field), "{wrong}: {said}");
    }
    let unreadable = stage.get("alice", &format!("{ACCOUNTS}?first=-1")).await;
    assert_eq!(error(&unreadable), (400, "invalid_field"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_gets_their_account_and_quota() {
    let stage = Stage::new().await;
    let who = stage.get("alice", ACCOUNT).await;
    assert_eq!((who.status, &who.body["username"]), (200, &json!("alice")));
    assert_eq!(who.body["organization"]["id"], ORG);
    let review = stage.call("alice", "POST", TERMS, &json!({ "event_code": "register" })).await;
    assert_eq!(review.status, 200, "{}", review.text);
    assert_eq!(review.body["terms_required"], false);

    let costs = async |who: &str, org: &str| stage.get(who, &quota(org)).await;
    let of = |answer: &Answer, product: &str, model: &str| {
        let items = answer.items().to_vec();
        items.into_iter().find(|item| {
            let resources = item["related_resources"].as_array().unwrap();
            resources.iter().any(|r| r["product"] == product && r["billing_model"] == model)
        })
    };
    let before = costs("alice", ORG).await;
    assert_eq!(before.status, 200, "{}", before.text);
    let standard = of(&before, "RHOSAK", "standard").unwrap();
    assert_eq!(standard["related_resources"][0]["resource_name"], "rhosak");
    assert_eq!(standard["consumed"], 0);
    let body = json!({ "name": "one", "plan": "standard.x2" });
    stage.create_with(KAFKA, "alice", body).await;
    let after = of(&costs("alice", ORG).await, "RHOSAK", "standard").unwrap();
    assert_eq!((&after["consumed"], &after["allowed"]), (&json!(2), &standard["allowed"]));

    // Who has no quota may try.
    let trials = costs("mallory", OTHER_ORG).await;
    assert!(of(&trials, "RHOSAK", "standard").is_none(), "{}", trials.text);
    assert!(of(&trials, "RHOSAKTrial", "standard").is_some(), "{}", trials.text);
    assert_eq!(costs("mallory", ORG).await.status, 404, "others' quota is not their business");
}

/// Programs, agents and those without an organisation are nobody here, as in the kind's own API.
#[tokio::test(flavor = "multi_thread")]
async fn only_people_of_an_organisation_are_let_in() {
    let stage = Stage::new().await;
    let id = make(&stage, "alice", json!({ "name": "a" })).await.body["id"].clone();
    let one = format!("{ACCOUNTS}/{}", id.as_str().unwrap());
    let routes = [
        ("GET", ACCOUNTS.to_owned()),
        ("POST", ACCOUNTS.to_owned()),
        ("GET", one.clone()),
        ("DELETE", one.clone()),
        ("POST", format!("{one}/resetSecret")),
        ("POST", TERMS.to_owned()),
        ("GET", ACCOUNT.to_owned()),
        ("GET", quota(ORG)),
    ];
    let strangers = [
        "",
        "bad-signature",
        "expired",
        "wrong-issuer",
        "garbage",
        "service-account",
        "no-org",
        "admin-full",
        "agent",
    ];
    for (method, path) in &routes {
        for who in strangers {
            let answer = stage.call(who, method, path, &json!({ "name": "b" })).await;
            assert_eq!(answer.status, 401, "{method} {path} as {who}: {}", answer.text);
        }
    }
    let other = stage.get("mallory", &one).await;
    assert_eq!(error(&other), (404, "service_account_not_found"));
    let other = stage.call("mallory", "DELETE", &one, &Value::Null).await;
    assert_eq!(error(&other), (403, "service_account_access_invalid"));
}
