//! A domain's own surface: paths that no route of the kernel's takes part in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body as Raw;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use kernel::http::{self, Config, RequestContext, Routes};
use kernel::identity::TokenProblem;
use kernel::{App, Error};

use crate::world::World;

type Request = axum::extract::Request;

/// Takes `/fleet` and what is below; and `/later` and what is below, once it is open.
struct Own {
    world: World,
    later: Arc<AtomicBool>,
}

fn own(config: Config) -> Own {
    let later = Arc::new(AtomicBool::new(false));
    let open = later.clone();
    let take = move |path: &str| {
        let below = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        below("/fleet") || (open.load(Ordering::SeqCst) && below("/later"))
    };
    let mapper = |error: &Error, context: &RequestContext| {
        let problem = match error {
            Error::Unauthenticated { problem, .. } => Some(*problem),
            _ => None,
        };
        let said = format!("{} {error} {problem:?} {}", context.path, context.routed());
        let mut response = (http::status(error), said).into_response();
        if problem == Some(TokenProblem::Missing) {
            let realm = "Bearer realm=\"own\"".parse().unwrap();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
        }
        response
    };
    let routes = Routes::new().errors_where(take.clone(), Arc::new(mapper));
    let routes = routes.surfaces(take, |app, context, request| {
        answer(app, context, request).map(|it| it.unwrap_or_else(|e| e.into_response())).boxed()
    });
    Own { world: World::routing(routes, config), later }
}

async fn answer(
    app: App,
    context: Arc<RequestContext>,
    request: Request,
) -> Result<Response, Error> {
    let (parts, body) = request.into_parts();
    match parts.uri.path().rsplit('/').next().unwrap() {
        "nowhere" => return Err(Error::NotFound("it".into())),
        "panics" => panic!("on demand"),
        "bare" => return Ok(StatusCode::METHOD_NOT_ALLOWED.into_response()),
        _ => {}
    }
    context.set_route("/fleet/{rest}".into());
    let who = http::sign_in(&app, &context, &parts.method, &parts.headers).await?;
    let body = http::read_body(&context, body).await?;
    let text = format!("{} {} {}", parts.method, who.subject, body.len());
    Ok(([("x-method", parts.method.to_string())], text).into_response())
}

#[tokio::test]
async fn every_method_below_the_prefix_reaches_the_domain_and_nothing_else_does() {
    let Own { world, .. } = own(Config::default());
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "BREW"] {
        for path in ["/fleet", "/fleet/", "/fleet/a/b?c=d"] {
            let request = world.request(method, "alice", path).body(Raw::empty()).unwrap();
            let answer = world.send(request).await;
            assert_eq!((answer.status, answer.header("x-method")), (200, method), "{path}");
            let text = if method == "HEAD" { String::new() } else { format!("{method} alice 0") };
            assert_eq!(answer.text, text, "{path}");
            assert_eq!(answer.header("x-request-id").len(), 20);
        }
    }
    for path in ["/fleets", "/later", "/x/fleet", "/"] {
        let answer = world.get("alice", path).await;
        assert_eq!((answer.status, answer.error("code")), (404, "not_found"), "{path}");
    }
    let metrics = world.app.metrics.encode();
    let counted = r#"requests_total{method="GET",route="/fleet/{rest}",status="2xx"} 3"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_prefix_may_come_while_the_server_runs() {
    let Own { world, later } = own(Config::default());
    assert_eq!(world.get("alice", "/later/x").await.status, 404);
    later.store(true, Ordering::SeqCst);
    assert_eq!(world.get("alice", "/later/x").await.text, "GET alice 0");
}

#[tokio::test]
async fn errors_of_own_paths_are_written_by_the_domain_and_answers_are_left_alone() {
    let Own { world, .. } = own(Config { body_bytes_max: 100, ..Config::default() });
    let table = [
        ("GET", "alice", "/fleet/nowhere", 404, "/fleet/nowhere it does not exist None false"),
        ("GET", "", "/fleet/x", 401, "in the Authorization header Some(Missing) true"),
        ("GET", "x", "/fleet/x", 401, "Some(Malformed) true"),
        ("GET", "", "/fleet/panics", 500, "None false"),
        ("PUT", "", "/fleet/bare", 405, ""),
    ];
    for (method, who, path, status, text) in table {
        let answer = world.send(world.request(method, who, path).body(Raw::empty()).unwrap()).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert!(answer.text.ends_with(text), "{path}: {}", answer.text);
    }
    let missing = world.get("", "/fleet/x").await;
    assert_eq!(missing.header("www-authenticate"), r#"Bearer realm="own""#);
    let basic = world.request("GET", "", "/fleet/x").header("authorization", "Basic abc");
    let answer = world.send(basic.body(Raw::empty()).unwrap()).await;
    assert!(answer.text.contains("Some(OtherScheme)"), "{}", answer.text);

    let chunks = ["x"; 200].map(|chunk| Ok::<_, std::io::Error>(chunk.to_owned()));
    let unannounced = Raw::from_stream(futures::stream::iter(chunks));
    let answer =
        world.send(world.request("PUT", "bob", "/fleet/x").body(unannounced).unwrap()).await;
    assert_eq!(answer.status, 413, "{}", answer.text);
}

#[tokio::test]
async fn a_cookie_signs_in_but_not_from_another_site_s_page() {
    let Own { world, .. } = own(Config::default());
    let cookie = format!("cs_jwt={}", world.token("bob"));
    let send = async |site: &str| {
        let request = world.request("POST", "", "/fleet/x").header("cookie", &cookie);
        world.send(request.header("sec-fetch-site", site).body(Raw::empty()).unwrap()).await
    };
    assert_eq!(send("same-origin").await.text, "POST bob 0");
    assert_eq!(send("cross-site").await.status, 403);
}

#[tokio::test]
async fn the_rate_and_the_origins_of_all_routes_hold_there_too() {
    let origins = vec!["https://console.example".to_owned()];
    let config =
        Config { rate_per_s: 1, rate_burst: 2, cors_origins: origins, ..Config::default() };
    let Own { world, .. } = own(config);
    let send = async |method: &str, path: &str| {
        let request = world.request(method, "alice", path);
        let request = request.header("origin", "https://console.example");
        let request = request.header("access-control-request-method", "GET");
        world.send(request.body(Raw::empty()).unwrap()).await
    };
    for (path, status) in [("/fleet/x", 200), ("/api/v1/objects", 200), ("/fleet/x", 429)] {
        let answer = send("GET", path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, "https://console.example", "{path}");
    }
    let preflight = send("OPTIONS", "/fleet/x").await;
    assert_eq!((preflight.status, preflight.header("x-method")), (200, ""), "CORS answers itself");
}
