//! What the generic routes and `explain` show of the fleet's objects, and to whom.

use serde_json::{Value, json};

use crate::callers::CLUSTER;
use crate::stage::{KAFKA, Stage};

/// What only admins see of how an instance is run.
const HIDDEN: [&str; 5] =
    ["quota_counter", "capacity_counter", "subscription_id", "placement_id", "cluster_id"];

#[tokio::test(flavor = "multi_thread")]
async fn members_see_what_their_api_shows_and_admins_everything() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "shown").await;
    let object = format!("/api/v1/objects/kafka/{id}");
    for path in [&object, "/api/v1/objects?kind=kafka", "/api/v1/search?q=shown", "/api/v1/events"]
    {
        let shown = stage.get("bob", path).await;
        assert_eq!(shown.status, 200, "{path}: {}", shown.text);
        assert!(shown.text.contains(&id), "{path}");
        for hidden in HIDDEN.iter().chain([&CLUSTER]) {
            assert!(!shown.text.contains(hidden), "{path} shows {hidden}: {}", shown.text);
        }
        assert!(!stage.get("mallory", path).await.text.contains("alice"), "{path}");
        assert!(stage.get("admin-read", path).await.text.contains("capacity_counter"), "{path}");
    }
    let cluster = format!("/api/v1/objects/cluster/{CLUSTER}");
    assert_eq!(stage.get("bob", &cluster).await.status, 404);
    assert_eq!(stage.get("admin-read", &cluster).await.status, 200);
    let why = format!("/api/v1/fleet/instances/kafka/{id}/explanation");
    let explained = stage.get("bob", &why).await;
    assert_eq!((explained.status, &explained.body["cluster"]), (200, &Value::Null));
    assert!(explained.body["work"]["worker"].is_null(), "{}", explained.text);
    assert_eq!(stage.get("admin-read", &why).await.body["cluster"], CLUSTER);
    assert_eq!(stage.get("mallory", &why).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_an_organisation_is_not_the_owner_of_equal_name() {
    let stage = Stage::new().await;
    // Owned by somebody called `no-org`, in an organisation.
    let id = stage.create_ready(KAFKA, "alice", "hers").await;
    let (path, owner) = (KAFKA.path(&format!("/{id}")), json!({ "owner": "no-org" }));
    assert_eq!(stage.call("carol", "PATCH", &path, &owner).await.status, 200);
    let why = format!("/api/v1/fleet/instances/kafka/{id}/explanation");
    assert_eq!(stage.get("no-org", &why).await.status, 404);
    assert_eq!(stage.get("no-org", &format!("/api/v1/objects/kafka/{id}")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_member_sees_nothing() {
    let stage = Stage::configured(|config| {
        let file = config.quota_file.as_ref().unwrap().with_file_name("deny.yaml");
        std::fs::write(&file, "[bob]").unwrap();
        config.deny_file = Some(file);
    })
    .await;
    let id = stage.create_ready(KAFKA, "alice", "hers").await;
    let why = format!("/api/v1/fleet/instances/kafka/{id}/explanation");
    assert_eq!(stage.get("bob", &why).await.status, 403);
    assert_eq!(stage.get("alice", &why).await.status, 200);
    assert_eq!(stage.get("bob", &format!("/api/v1/objects/kafka/{id}")).await.status, 404);
    for path in ["/api/v1/objects", "/api/v1/search?q=hers", "/api/v1/events"] {
        assert!(!stage.get("bob", path).await.text.contains(&id), "{path}");
        assert!(stage.get("alice", path).await.text.contains(&id), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_file_cannot_take_the_name_of_another_kind() {
    let kinds = tempfile::tempdir().unwrap();
    let stage = Stage::configured(|config| config.kinds_dir = Some(kinds.path().into())).await;
    let kafka = include_str!("../../../../kinds/kafka.yaml");
    for taken in ["session", "catalogue", "installation"] {
        let text = kafka.replacen("kind: kafka", &format!("kind: {taken}"), 1);
        let text = text.replace("kafkas_mgmt", "others_mgmt").replace("KAFKAS-MGMT", "OTHERS-MGMT");
        assert_ne!(text, kafka);
        std::fs::write(kinds.path().join("taken.yaml"), text).unwrap();
        let refused = stage.call("admin-full", "POST", "/api/v1/fleet/reload", &Value::Null).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.text.contains(&format!("kinds: {taken}")), "{}", refused.text);
    }
}
