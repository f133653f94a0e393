//! Mounted APIs: prefixes that come and go, a wire format of their own, one table of routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body as Raw;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use kernel::http::{self, Api, Call, Config, Deferred, Mount, Operation, RequestContext, Route};
use kernel::http::{Routes, Rule};
use kernel::identity::{Action, Principal, TokenProblem};
use kernel::{Error, Result};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::server::{TestResponse, TestServer};

/// An API of boats or of trains; only boats have anchors.
struct Vehicles {
    prefix: String,
    plural: &'static str,
    observed: Observed,
}

type Observed = Arc<Mutex<Vec<String>>>;

impl Api for Vehicles {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn fixed_param(&self, name: &str) -> Option<&str> {
        (name == "plural").then_some(self.plural)
    }

    fn authorize(call: &Call<Vehicles>, _: Action, who: &Principal) -> Result<()> {
        let own = call.param("owner").is_empty() || call.param("owner") == who.subject;
        if own { Ok(()) } else { Err(Error::Forbidden("not your own".into())) }
    }

    fn deny(&self, action: Action, who: &Principal) -> Error {
        Error::Conflict(format!("{action:?} is not for {}", who.subject))
    }

    fn error(&self, error: &Error, context: &RequestContext) -> Response {
        let problem = match error {
            Error::Unauthenticated { problem, .. } => Some(*problem),
            _ => None,
        };
        let text = format!("{} {error} {problem:?} {}", self.plural, context.routed());
        let mut response = (http::status(error), text).into_response();
        if problem == Some(TokenProblem::Missing) {
            let realm = HeaderValue::from_static("Bearer realm=\"own\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
        }
        response
    }

    fn add_headers(&self, _: &RequestContext, headers: &mut HeaderMap) {
        headers.insert("x-own", HeaderValue::from_static("yes"));
    }

    fn observe(&self, method: &'static str, route: &Arc<str>, status: u16, _: Duration) {
        self.observed.lock().push(format!("{method} {route} {status}"));
    }

    fn parameter(&self, name: &str, in_path: bool) -> Value {
        json!({ "name": name, "in": if in_path { "path" } else { "query" } })
    }

    fn document(&self, paths: Map<String, Value>) -> Value {
        json!({ "openapi": "3.0.3", "paths": paths })
    }

    fn document_link(&self) -> (String, String) {
        (self.plural.into(), format!("{}/openapi", self.prefix))
    }
}

async fn root(call: Call<Vehicles>) -> Result<Response> {
    Ok(call.plural.into_response())
}

async fn openapi(call: Call<Vehicles>) -> Result<Response> {
    Ok(call.openapi().into_response())
}

async fn panics(_: Call<Vehicles>) -> Result<Response> {
    panic!("on demand")
}

async fn echo(mut call: Call<Vehicles>, who: Arc<Principal>) -> Result<Response> {
    let bytes = call.bytes().await?;
    let (method, id) = (call.context.method.clone(), call.param("id").to_owned());
    Ok(format!("{method} {} {id} {}", who.subject, bytes.len()).into_response())
}

async fn missing(_: Call<Vehicles>, _: Arc<Principal>) -> Result<Response> {
    Err(Error::NotFound("it".into()))
}

async fn waits(_: Call<Vehicles>, _: Arc<Principal>) -> Result<Response> {
    Ok(Deferred::new(Duration::from_secs(1), async { Ok("at last".into_response()) })
        .into_response())
}

/// Boats always; trains from the second version on.
#[derive(Clone, Default)]
struct Fleet(Arc<AtomicU64>, Observed);

impl Mount for Fleet {
    type Api = Vehicles;

    fn routes(&self) -> Vec<Route<Vehicles>> {
        let (get, put) = (Method::GET, Method::PUT);
        vec![
            Route::public(get.clone(), "", root),
            Route::public(get.clone(), "/openapi", openapi),
            Route::public(get.clone(), "/panics", panics),
            Route::new(get.clone(), "/missing", Action::Read, missing),
            Route::new(get.clone(), "/waits", Action::Read, waits),
            Route::new(get.clone(), "/{plural}/{id}", Action::Read, echo).document(|api| {
                Operation::new(format!("get-{}", api.plural), "One of them")
                    .query(&["deep"])
                    .returns(200, "Vehicle")
                    .errors(&[404])
            }),
            Route::new(put.clone(), "/{plural}/{id}", Action::Write, echo),
            Route::new(get.clone(), "/of/{owner}/{plural}/{id}", Action::Read, echo),
            Route::new(get.clone(), "/admin/{plural}/{id}", Action::AdminRead, echo),
            Route::new(put, "/{plural}/{id}/anchor", Action::Write, echo)
                .only_if(|api| api.plural == "boats"),
        ]
    }

    fn apis(&self) -> Vec<Vehicles> {
        let api = |plural: &'static str| Vehicles {
            prefix: format!("/api/{plural}_mgmt"),
            plural,
            observed: self.1.clone(),
        };
        let mut apis = vec![api("boats")];
        if self.version() > 0 {
            apis.push(api("trains"));
        }
        apis
    }

    fn version(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

const BOATS: &str = "/api/boats_mgmt";

fn server(config: Config) -> TestServer {
    TestServer::routing(Routes::new().mount(Fleet::default()), config)
}

async fn send(server: &TestServer, method: &str, who: &str, path: &str) -> TestResponse {
    server.send(server.request(method, who, path).body(Raw::empty()).unwrap()).await
}

#[tokio::test]
async fn a_path_below_the_prefix_is_matched_by_the_mounted_table_and_no_other() {
    let server = server(Config::default());
    for (method, path, text) in [
        ("GET", "", "boats"),
        ("GET", "/", "boats"),
        ("GET", "/boats/b1", "GET alice b1 0"),
        ("GET", "/boats/b1/?c=d", "GET alice b1 0"),
        ("PUT", "/boats/b%201", "PUT alice b%201 0"),
        ("PUT", "/boats/b1/anchor", "PUT alice b1 0"),
    ] {
        let response = send(&server, method, "alice", &format!("{BOATS}{path}")).await;
        assert_eq!((response.status, response.text.as_str()), (200, text), "{method} {path}");
        assert_eq!((response.header("x-own"), response.header("x-request-id").len()), ("yes", 20));
    }
    for path in ["/api/boats_mgmts", "/api/boats", "/boats_mgmt", "/api/trains_mgmt", "/"] {
        let response = server.get("alice", path).await;
        assert_eq!((response.status, response.error("code")), (404, "not_found"), "{path}");
        assert_eq!(response.header("x-own"), "", "{path}");
    }
    let metrics = server.app.metrics.encode();
    let counted = r#"requests_total{method="GET",route="/api/boats_mgmt/boats/-",status="2xx"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn an_api_may_appear_while_the_server_runs() {
    let fleet = Fleet::default();
    let server = TestServer::routing(Routes::new().mount(fleet.clone()), Config::default());
    let path = "/api/trains_mgmt/trains/t1";
    assert_eq!(server.get("alice", path).await.status, 404);
    fleet.0.store(1, Ordering::SeqCst);
    assert_eq!(server.get("alice", path).await.text, "GET alice t1 0");
    let anchor = send(&server, "PUT", "alice", &format!("{path}/anchor")).await;
    assert_eq!(anchor.status, 404, "trains have none: {}", anchor.text);
}

#[tokio::test]
async fn errors_below_the_prefix_are_written_by_the_api() {
    let server = server(Config { body_bytes_max: 100, ..Config::default() });
    for (method, who, path, status, text) in [
        ("GET", "alice", "/missing", 404, "boats it does not exist None true"),
        (
            "GET",
            "alice",
            "/nowhere",
            404,
            "boats /api/boats_mgmt/nowhere does not exist None false",
        ),
        ("GET", "alice", "/boats/", 404, "None false"),
        ("GET", "", "/nowhere", 401, "in the Authorization header Some(Missing) false"),
        ("DELETE", "", "/boats/b1", 401, "Some(Missing) false"),
        ("DELETE", "alice", "/boats/b1", 405, "boats DELETE is not possible here None false"),
        ("HEAD", "alice", "/boats/b1", 405, ""),
        ("OPTIONS", "alice", "/boats/b1", 405, "None false"),
        ("GET", "", "/boats/b1", 401, "Some(Missing) false"),
        ("GET", "x", "/boats/b1", 401, "Some(Malformed) false"),
        ("GET", "", "/panics", 500, "None true"),
        ("GET", "alice", "/admin/boats/b1", 409, "AdminRead is not for alice None true"),
        ("GET", "alice", "/of/bob/boats/b1", 403, "boats not your own None true"),
    ] {
        let response = send(&server, method, who, &format!("{BOATS}{path}")).await;
        assert_eq!(response.status, status, "{method} {path}: {}", response.text);
        assert!(response.text.ends_with(text), "{method} {path}: {}", response.text);
        let routed = response.text.ends_with("true");
        assert_eq!(response.header("x-own"), if routed { "yes" } else { "" }, "{method} {path}");
    }
    assert_eq!(server.get("alice", &format!("{BOATS}/of/alice/boats/b1")).await.status, 200);
    assert_eq!(server.get("reader", &format!("{BOATS}/admin/boats/b1")).await.status, 200);
    let path = format!("{BOATS}/boats/b1");
    let missing = server.get("", &path).await;
    assert_eq!(missing.header("www-authenticate"), r#"Bearer realm="own""#);
    let basic = server.request("GET", "", &path).header("authorization", "Basic abc");
    let response = server.send(basic.body(Raw::empty()).unwrap()).await;
    assert!(response.text.contains("Some(OtherScheme)"), "{}", response.text);

    let chunks = ["x"; 200].map(|chunk| Ok::<_, std::io::Error>(chunk.to_owned()));
    let unannounced = Raw::from_stream(futures::stream::iter(chunks));
    let response =
        server.send(server.request("PUT", "bob", &path).body(unannounced).unwrap()).await;
    assert_eq!(response.status, 413, "{}", response.text);
    let announced = server.request("PUT", "bob", &path).header("content-length", 200);
    let response = server.send(announced.body(Raw::empty()).unwrap()).await;
    assert_eq!((response.status, &response.text[..5]), (413, "boats"), "{}", response.text);
}

#[tokio::test]
async fn a_cookie_signs_in_but_not_from_another_site_s_page() {
    let server = server(Config::default());
    let cookie = format!("cs_jwt={}", server.token("bob"));
    let send = async |site: &str| {
        let request = server.request("PUT", "", &format!("{BOATS}/boats/b1"));
        let request = request.header("cookie", &cookie).header("sec-fetch-site", site);
        server.send(request.body(Raw::empty()).unwrap()).await
    };
    assert_eq!(send("same-origin").await.text, "PUT bob b1 0");
    assert_eq!(send("cross-site").await.status, 403);
}

#[tokio::test]
async fn the_rate_and_the_origins_of_all_routes_hold_for_mounted_ones_too() {
    let origins = vec!["https://console.example".to_owned()];
    let config =
        Config { rate_per_s: 1, rate_burst: 3, cors_origins: origins, ..Config::default() };
    let server = server(config);
    let send = async |method: &str, path: &str| {
        let request = server.request(method, "alice", path);
        let request = request.header("origin", "https://console.example");
        let request = request.header("access-control-request-method", "GET");
        server.send(request.body(Raw::empty()).unwrap()).await
    };
    let (boat, waits) = (format!("{BOATS}/boats/b1"), format!("{BOATS}/waits"));
    for (path, status) in
        [(&*boat, 200), ("/api/v1/objects", 200), (&*waits, 200), (&*boat, 429), (&*waits, 429)]
    {
        let response = send("GET", path).await;
        assert_eq!(response.status, status, "{path}: {}", response.text);
        let allowed = response.header("access-control-allow-origin");
        assert_eq!(allowed, "https://console.example", "{path}");
    }
    let preflight = send("OPTIONS", &boat).await;
    assert_eq!((preflight.status, preflight.header("x-own")), (200, ""), "CORS responds itself");
}

#[test]
fn the_routes_of_mounted_apis_are_in_the_permission_table() {
    let rules = Routes::new().mount(Fleet::default()).rules();
    assert_eq!(rules.len(), 10);
    let rule = |method: &str, path: &str, action| Rule {
        method: method.into(),
        path: format!("{BOATS}{path}"),
        action,
    };
    for expected in [
        rule("GET", "", Action::Public),
        rule("PUT", "/boats/{id}", Action::Write),
        rule("GET", "/of/{owner}/boats/{id}", Action::Read),
        rule("GET", "/admin/boats/{id}", Action::AdminRead),
    ] {
        assert!(rules.contains(&expected), "{expected:?} in {rules:?}");
    }
}

#[tokio::test]
async fn the_document_of_a_mounted_api_is_written_from_its_routes() {
    let server = server(Config::default());
    let document = server.get("", &format!("{BOATS}/openapi")).await.body;
    let content = |name: &str| json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } } });
    let expected = json!({ "/api/boats_mgmt/boats/{id}": { "get": {
        "operationId": "get-boats",
        "summary": "One of them",
        "parameters": [{ "name": "id", "in": "path" }, { "name": "deep", "in": "query" }],
        "responses": {
            "200": { "description": "One of them", "content": content("Vehicle") },
            "404": { "description": "The resource does not exist", "content": content("Error") },
        },
        "security": [{ "Bearer": [] }],
    } } });
    assert_eq!(document["paths"], expected);
}

#[tokio::test]
async fn the_documentation_page_offers_the_documents_of_mounted_apis_too() {
    let server = server(Config::default());
    let start = server.get("", "/api/v1/doc/swagger-initializer.js").await;
    for shown in ["/api/v1/doc/openapi.json", "Mainstay", "/api/boats_mgmt/openapi", "boats"] {
        assert!(start.text.contains(shown), "{shown} in {}", start.text);
    }
    assert!(start.text.contains("StandaloneLayout"), "the layout with the bar: {}", start.text);
}

#[tokio::test]
async fn an_api_observes_the_requests_that_matched_one_of_its_routes() {
    let fleet = Fleet::default();
    let server = TestServer::routing(Routes::new().mount(fleet.clone()), Config::default());
    for (who, path) in
        [("alice", "/boats/b1"), ("alice", "/missing"), ("alice", "/nowhere"), ("", "/boats/b1")]
    {
        server.get(who, &format!("{BOATS}{path}")).await;
    }
    server.get("alice", "/api/v1/objects").await;
    let expected = ["GET /api/boats_mgmt/boats/- 200", "GET /api/boats_mgmt/missing 404"];
    assert_eq!(*fleet.1.lock(), expected);
}

#[tokio::test]
async fn every_origin_may_call_if_configured() {
    let config = Config { cors_origins: vec!["*".into()], ..Config::default() };
    let server = server(config);
    let request = server.request("GET", "alice", &format!("{BOATS}/boats/b1"));
    let request = request.header("origin", "https://a.example").body(Raw::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!((response.status, response.header("access-control-allow-origin")), (200, "*"));
}
