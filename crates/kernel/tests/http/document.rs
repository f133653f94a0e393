//! The OpenAPI document and the permission table are written from the routes.

use kernel::http::{Config, api};
use kernel::identity::Action;
use serde_json::Value;

use crate::server::TestServer;

#[test]
fn the_document_is_as_it_was_reviewed() {
    let document = serde_json::to_value(api::routes(&Config::default()).document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    insta::assert_json_snapshot!("openapi", document, { ".info.version" => "[version]" });
}

#[test]
fn every_operation_of_the_document_has_a_rule_and_every_rule_an_operation() {
    let routes = api::routes(&Config::default());
    let document = serde_json::to_value(routes.document()).unwrap();
    let mut documented = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
            documented.push((method.to_uppercase(), path.clone()));
        }
    }
    let mut ruled: Vec<_> =
        routes.rules().into_iter().map(|rule| (rule.method, rule.path)).collect();
    documented.sort();
    ruled.sort();
    assert_eq!(documented, ruled);
    assert!(ruled.len() > 15, "{ruled:?}");
}

#[test]
fn every_reference_of_the_document_leads_somewhere_and_every_operation_has_its_own_id() {
    let routes = api::routes(&Config::default());
    assert_eq!(routes.clashes(), Vec::<String>::new());
    let document = serde_json::to_value(routes.document()).unwrap();
    let text = document.to_string();
    let references: Vec<&str> =
        text.split("\"#").skip(1).map(|t| &t[..t.find('"').unwrap()]).collect();
    assert!(references.len() > 20);
    for reference in references {
        assert!(document.pointer(reference).is_some(), "{reference} leads nowhere");
    }
    let mut ids: Vec<&str> =
        text.split(r#""operationId":""#).skip(1).map(|t| &t[..t.find('"').unwrap()]).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), all), (routes.rules().len(), routes.rules().len()), "{ids:?}");
}

#[tokio::test]
async fn without_a_token_every_route_that_is_not_public_answers_401() {
    let server = TestServer::new();
    for rule in api::routes(&server.config).rules() {
        let path = rule.path.replace("{kind}", "widget").replace("{id}", "a");
        let path = path.replace("{file}", "index.css");
        for token in ["", "forged"] {
            let request = server.request(&rule.method, token, &path);
            let response = server.send(request.body(axum::body::Body::empty()).unwrap()).await;
            match rule.action {
                Action::Public => assert!(![401, 403, 404].contains(&response.status), "{rule:?}"),
                _ => {
                    assert_eq!(response.status, 401, "{rule:?}");
                    let why = response.header("www-authenticate");
                    assert!(why.starts_with("Bearer realm="), "{why}");
                    assert_eq!(why.contains("invalid_token"), token == "forged", "{why}");
                }
            }
            assert!(!response.header("x-request-id").is_empty(), "{rule:?}");
        }
    }
}

#[tokio::test]
async fn a_caller_without_the_role_answers_403_and_with_it_does_not() {
    let server = TestServer::new();
    let mut checked = 0;
    for rule in api::routes(&server.config).rules() {
        let path = rule.path.replace("{kind}", "widget").replace("{id}", "a");
        let path = path.replace("{file}", "index.css");
        let status = async |token| {
            let request = server.request(&rule.method, token, &path);
            server.send(request.body(axum::body::Body::empty()).unwrap()).await.status
        };
        let (alice, reader, admin) =
            (status("alice").await, status("reader").await, status("admin").await);
        assert_ne!(admin, 403, "{rule:?}");
        match rule.action {
            Action::AdminRead => assert!((alice, reader) == (403, 200), "{rule:?}"),
            Action::AdminWrite | Action::AdminFull => {
                assert!((alice, reader) == (403, 403), "{rule:?}")
            }
            _ => assert_ne!(alice, 403, "{rule:?}"),
        }
        checked += 1;
    }
    assert!(checked > 15);
}

#[tokio::test]
async fn the_document_and_its_page_are_served_without_another_server() {
    let server = TestServer::new();
    let document = server.get("", "/api/v1/doc/openapi.json").await;
    assert!(document.body["paths"]["/test/echo"].is_object(), "a domain's routes are in it too");
    for path in ["/api/v1/doc", "/api/v1/doc/"] {
        let page = server.get("", path).await;
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
        let parts: Vec<&str> =
            page.text.split('"').filter(|text| text.starts_with("/api/v1/doc/")).collect();
        assert!(parts.len() >= 4, "{}", page.text);
        assert!(!page.text.contains("http://") && !page.text.contains("https://"));
        for part in parts {
            assert_eq!(server.get("", part).await.status, 200, "{part}");
        }
    }
    let start = server.get("", "/api/v1/doc/swagger-initializer.js").await;
    assert!(start.text.contains("/api/v1/doc/openapi.json"), "{}", start.text);
    assert_eq!(server.get("", "/api/v1/doc/..%2fsecrets").await.status, 404);
}

#[tokio::test]
async fn metrics_can_be_for_admins_only() {
    let config = Config { metrics_public: false, ..Config::default() };
    let server = TestServer::with(config, kernel::Ambient::system());
    assert_eq!(server.get("", "/metrics").await.status, 401);
    assert_eq!(server.get("admin", "/metrics").await.status, 200);
    let document: Value = server.get("", "/api/v1/doc/openapi.json").await.body;
    assert_eq!(document["paths"]["/metrics"]["get"]["x-action"], "AdminRead");
}
