//! What the pages of the existing service ask for, and the endpoints of its past.

use serde_json::{Value, json};
use testkit::stores;

use super::differences::{ANY_ORIGIN, CREDENTIALS, RAW, UNKNOWN_PATH};
use super::golden::Replay;
use crate::support::server::{Server, config};
use crate::support::stand_in::{Reply, StandIn};

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_of_pages_are_answered_as_they_were_without_kubernetes_and_at_once() {
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[])).await;
    let begun = std::time::Instant::now();
    let mut replay = Replay::new(&server);
    replay
        .all(&[
            "query_listNamespaces_nok8s",
            "query_listDeployments_none",
            "health_cors",
            "listExperimentTrial",
            "listTrialStatus",
            "createExperimentTrial_bad",
            "unknown_path",
        ])
        .await;
    replay.finish(&[ANY_ORIGIN, CREDENTIALS, RAW, UNKNOWN_PATH]);
    assert!(begun.elapsed().as_secs() < 5, "it took 19 s there");
}

/// An API server with these namespaces and deployments.
async fn api_server() -> StandIn {
    StandIn::new(|seen| {
        let names: &[&str] = match seen.path.as_str() {
            "/api/v1/namespaces" => &["kube-system", "default", "kube-public", "kube-node-lease"],
            "/apis/apps/v1/namespaces/shop/deployments" => &["web"],
            path if path.starts_with("/apis/apps/v1/namespaces/") => &[],
            _ => return Reply::status(403),
        };
        let item = |name: &&str| json!({ "metadata": { "name": name } });
        let items: Vec<Value> = names.iter().map(item).collect();
        Reply::Json(json!({ "kind": "List", "apiVersion": "v1", "items": items }))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_see_the_cluster_around_the_server_and_nobody_else() {
    let api = api_server().await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": api.url } }],
        "users": [{ "name": "c", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let fresh = stores::sqlite().await.unwrap();
    let config = advisor::Config { kubeconfig: Some(kubeconfig), ..config(&[]) };
    let server = Server::start(&fresh, &config).await;
    let mut replay = Replay::new(&server).by_admin();
    replay.all(&["query_listNamespaces", "query_listDeployments"]).await;
    replay.finish(&[]);
    let admin = server.admin();
    let get = async |path: &str| server.call_as(&admin, "GET", path, "").await.body;
    let deployments = get("/query/listDeployments?namespace=shop").await;
    assert_eq!(deployments, json!({ "data": { "deployments": ["web"] } }));
    let objects = get("/query/listK8sObjects?namespace=shop").await;
    let expected = json!({ "deployments": ["web"], "statefulsets": [], "daemonsets": [] });
    assert_eq!(objects, json!({ "data": expected }));

    let asked = api.seen().len();
    for path in ["/query/listNamespaces", "/query/listDeployments?namespace=shop"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &*answer.text), (200, ""), "{path}");
    }
    assert_eq!(api.seen().len(), asked);
}
