//! Quota and terms that an account management service decides.

use fleet::config::QuotaType;
use serde_json::{Value, json};
use testkit::ams::{Offer, Server, TOKEN, start};

use crate::callers::ORG;
use crate::stage::{KAFKA, Stage, eventually};

async fn stage() -> (Stage, Server) {
    let offer = |product, allowed| Offer { org: ORG, product, billing_model: "standard", allowed };
    let server = start(vec![offer("RHOSAK", 2)]).await;
    let url = server.url.clone();
    let stage = Stage::configured(|config| {
        config.quota_type = QuotaType::Ams;
        config.ams.url = url;
        config.ams.token = TOKEN.into();
        config.terms.required = true;
        config.terms.site = "ocm".into();
        config.terms.event = "onlineService".into();
    })
    .await;
    (stage, server)
}

fn held(server: &Server) -> usize {
    let world = server.world.lock();
    world.subscriptions.iter().filter(|one| one.status != "Deprovisioned").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reserved_is_counted_there_and_given_back() {
    let (stage, server) = stage().await;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        ids.push(stage.create_ready(KAFKA, "alice", name).await);
    }
    assert_eq!(held(&server), 2);
    let quota =
        stage.get("alice", &format!("/api/accounts_mgmt/v1/organizations/{ORG}/quota_cost")).await;
    let of = |item: &&Value| item["related_resources"][0]["product"] == "RHOSAK";
    let standard = quota.items().iter().find(of).unwrap();
    assert_eq!((&standard["allowed"], &standard["consumed"]), (&json!(2), &json!(2)));

    let over = stage.create(KAFKA, "alice", "three").await;
    eventually("the third fails for want of quota", async || {
        stage.status(KAFKA, &over).await == "failed"
    })
    .await;
    let seen = stage.get("alice", &KAFKA.path(&format!("/{over}"))).await.body;
    assert!(seen["failed_reason"].to_string().contains("quota does not suffice"), "{seen}");

    let path = KAFKA.path(&format!("/{}?async=true", ids[0]));
    assert_eq!(stage.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
    stage.agent(KAFKA).make_gone(&ids[0]).await;
    eventually("its quota is given back", async || held(&server) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_reserves_the_new_product_and_gives_the_old_one_back() {
    let (stage, server) = stage().await;
    let offer = |product, allowed| Offer { org: ORG, product, billing_model: "standard", allowed };
    server.world.lock().offers = vec![offer("RHOSAK", 1), offer("RHOSAKEval", 2)];
    let held = |id: &str| -> Vec<String> {
        let world = server.world.lock();
        let of = world.subscriptions.iter().filter(|one| one.cluster_id == id);
        let of = of.filter(|one| one.status != "Deprovisioned");
        of.map(|one| one.request["product_id"].as_str().unwrap().to_owned()).collect()
    };
    let eval = async |name: &str| {
        let body = json!({ "name": name, "billing_model": "eval" });
        let id = stage.create_with(KAFKA, "alice", body).await;
        stage.agent(KAFKA).make_ready(&id).await;
        assert_eq!(held(&id), ["RHOSAKEval"]);
        id
    };
    let promote = async |id: &str| {
        let path = KAFKA.path(&format!("/{id}/promote?async=true"));
        let to = json!({ "desired_kafka_billing_model": "standard" });
        assert_eq!(stage.call("alice", "POST", &path, &to).await.status, 202);
    };
    let seen = async |id: &str| stage.get("alice", &KAFKA.path(&format!("/{id}"))).await.body;

    let first = eval("one").await;
    promote(&first).await;
    eventually("it is promoted", async || seen(&first).await["billing_model"] == "standard").await;
    assert_eq!(held(&first), ["RHOSAK"]);

    // The organisation has no more of it: the instance stays what it was.
    let second = eval("two").await;
    promote(&second).await;
    let failed = async || seen(&second).await["promotion_status"] == "failed";
    eventually("it is not promoted", failed).await;
    let left = seen(&second).await;
    assert_eq!(left["billing_model"], "eval", "{left}");
    assert!(left["promotion_details"].to_string().contains("does not suffice"), "{left}");
    assert_eq!(held(&second), ["RHOSAKEval"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_with_open_terms_gets_their_url_and_creates_nothing() {
    let (stage, _server) = stage().await;
    let review = async |who: &str| {
        let path = "/api/authorizations/v1/self_terms_review";
        stage.call(who, "POST", path, &json!({})).await.body
    };
    assert_eq!(review("alice").await["terms_required"], false);
    let open = review("carol").await;
    assert_eq!(
        (&open["terms_required"], &open["redirect_url"]),
        (&json!(true), &json!("https://terms.example"))
    );
    let path = KAFKA.path("?async=true");
    let refused = stage.call("carol", "POST", &path, &json!({ "name": "one" })).await;
    assert_eq!((refused.status, refused.code()), (403, 12), "{}", refused.text);
    assert_eq!(stage.get("carol", &KAFKA.path("")).await.body["total"], 0);
}
