//! `/dsmetadata`: the recorded requests, and what is imported.

use serde_json::{Value, json};
use testkit::stores;

use super::differences::NO_BODY;
use super::golden::Replay;
use crate::support::cluster::Cluster;
use crate::support::server::{Server, config};

const IMPORT: &str = r#"{ "version": "v1.0", "datasource_name": "prometheus-1",
    "metadata_profile": "cluster-metadata-local-monitoring", "measurement_duration": "15min" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_metadata_are_answered_as_they_were() {
    let source = Cluster::recorded().start().await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("prometheus-1", &source.url)])).await;
    let mut replay = Replay::new(&server);
    replay
        .all(&[
            "dsmetadata_post_bad",
            "dsmetadata_post_noprofile",
            "dsmetadata_get_none",
            "dsmetadata_get_unknown",
            "dsmetadata_delete",
        ])
        .await;
    let imported = server.call("POST", "/dsmetadata", IMPORT).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    let shown = replay.one("dsmetadata_get").await;
    assert_eq!(imported.body, shown.body, "an import shows the cluster");
    replay
        .all(&["dsmetadata_get_cluster", "dsmetadata_get_verbose", "dsmetadata_get_ns_verbose"])
        .await;
    replay.finish(&[NO_BODY]);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_replaced_and_deleted_and_each_organisation_has_its_own() {
    let source = Cluster::of_pairs("prometheus-1").start().await;
    let fresh = stores::sqlite().await.unwrap();
    let config = config(&[("prometheus-1", &source.url), ("away", "http://127.0.0.1:9")]);
    let server = Server::start(&fresh, &config).await;
    for _ in 0..2 {
        assert_eq!(server.call("POST", "/dsmetadata", IMPORT).await.status, 201);
    }
    let get = async |query: &str| {
        let answer = server.get(&format!("/dsmetadata?{query}")).await;
        (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
    };
    let invalid = "either does not exist or is not valid";
    for (query, message) in [
        (
            "datasource=prometheus-1&cluster_name=x",
            format!(
                "Metadata for a given datasource name - prometheus-1, cluster_name - x {invalid}"
            ),
        ),
        (
            "datasource=prometheus-1&cluster_name=default&namespace=x",
            format!(
                "Metadata for a given datasource - prometheus-1, cluster name - default, \
                 namespace - x {invalid}"
            ),
        ),
    ] {
        assert_eq!(get(query).await, (400, message));
    }
    let globex = server.authorization_of("globex");
    let other = server.call_as(&globex, "GET", "/dsmetadata?datasource=prometheus-1", "").await;
    assert_eq!(other.status, 400, "{}", other.text);

    let post = async |datasource: &str, profile: &str| {
        let body = json!({ "datasource_name": datasource, "metadata_profile": profile });
        let answer = server.call("POST", "/dsmetadata", &body.to_string()).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        answer.body["message"].as_str().unwrap().to_owned()
    };
    let own = "cluster-metadata-local-monitoring";
    assert_eq!(
        post("nope", own).await,
        format!("Metadata cannot be imported for datasource - nope, {invalid}")
    );
    assert_eq!(post("prometheus-1", "x").await, format!("MetadataProfile - x {invalid}"));
    let away = post("away", own).await;
    assert!(away.contains("connection refused or timed out"), "{away}");
    let bad = json!({ "datasource_name": "prometheus-1", "metadata_profile": own,
        "measurement_duration": "soon" });
    let bad = server.call("POST", "/dsmetadata", &bad.to_string()).await;
    let message = bad.body["message"].as_str().unwrap();
    assert!(bad.status == 400 && message.contains("measurement_duration"), "{message}");

    let delete = async || {
        let body = r#"{ "version": "v1.0", "datasource_name": "prometheus-1" }"#;
        server.call("DELETE", "/dsmetadata", body).await
    };
    let deleted = delete().await;
    let message =
        "Datasource metadata deleted successfully. View imported metadata at GET /dsmetadata";
    assert_eq!((deleted.status, &deleted.body["message"]), (201, &json!(message)));
    assert_eq!(delete().await.status, 400);
    let gone = server.get("/dsmetadata?datasource=prometheus-1").await;
    assert_eq!((gone.status, gone.body["datasources"].clone()), (400, Value::Null));
}
