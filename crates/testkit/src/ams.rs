//! There is no account management service to run: this plays one, as far as Mainstay asks it. It
//! keeps to the wire of the public SDK: paged lists, a search of `field='value'`, organisations
//! with two ids, reservations that count, subscriptions that stay as `Deprovisioned`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub const TOKEN: &str = "ams-token";

/// How the next reservations are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Mood {
    #[default]
    Well,
    /// A refusal has the status "too many requests" and the body of a refusal.
    RefusesWith429,
    /// "Too many requests", and nothing done.
    Busy,
    /// It is done, and the answer is lost.
    LosesAnswers,
}

#[derive(Debug, Clone)]
pub struct Offer {
    pub org: &'static str,
    pub product: &'static str,
    pub billing_model: &'static str,
    pub allowed: i64,
}

#[derive(Debug, Clone)]
pub struct Subscription {
    pub id: String,
    pub cluster_id: String,
    pub status: &'static str,
    /// What was asked for.
    pub request: Value,
}

#[derive(Default)]
pub struct World {
    pub offers: Vec<Offer>,
    pub subscriptions: Vec<Subscription>,
    pub mood: Mood,
    /// Of each path, how often it was asked.
    pub asked: BTreeMap<String, u32>,
    /// Accounts tell only the id of their organisation.
    pub terse: bool,
}

pub type Shared = Arc<Mutex<World>>;

pub struct Server {
    pub url: String,
    pub world: Shared,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Usernames, organisations by their external ids, and whether they are banned.
const ACCOUNTS: [(&str, &str, bool); 3] =
    [("alice", "13640203", false), ("mallory", "13640203", true), ("carol", "999", false)];

fn org_id(external_id: &str) -> String {
    format!("org-{external_id}")
}

pub async fn start(offers: Vec<Offer>) -> Server {
    let world: Shared = Arc::new(Mutex::new(World { offers, ..World::default() }));
    let v1 = Router::new()
        .route("/organizations", get(organizations))
        .route("/organizations/{id}", get(organization))
        .route("/organizations/{id}/quota_cost", get(quota_cost))
        .route("/accounts", get(accounts))
        .route("/subscriptions", get(subscriptions))
        .route("/subscriptions/{id}", delete(unsubscribe))
        .route("/cluster_authorizations", post(authorize));
    let routes = Router::new()
        .nest("/api/accounts_mgmt/v1", v1)
        .route("/api/authorizations/v1/terms_review", post(terms))
        .layer(from_fn_with_state(world.clone(), gate))
        .with_state(world.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let stop = CancellationToken::new();
    let stopped = stop.clone().cancelled_owned();
    tokio::spawn(
        async move { axum::serve(listener, routes).with_graceful_shutdown(stopped).await },
    );
    Server { url, world, stop }
}

async fn gate(State(world): State<Shared>, request: Request, next: Next) -> Response {
    let path = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    *world.lock().asked.entry(path).or_default() += 1;
    let given = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    if given != Some(&format!("Bearer {TOKEN}")) {
        return error(StatusCode::UNAUTHORIZED, "Account could not be authenticated");
    }
    next.run(request).await
}

fn error(status: StatusCode, reason: &str) -> Response {
    let code = format!("ACCT-MGMT-{}", status.as_u16());
    (status, Json(json!({"kind": "Error", "code": code, "reason": reason}))).into_response()
}

/// The value that the search asks for in this field.
fn searched(query: &BTreeMap<String, String>, field: &str) -> Result<String, Box<Response>> {
    let search = query.get("search").map(String::as_str).unwrap_or_default();
    let value = search.strip_prefix(field).and_then(|rest| rest.strip_prefix("='"));
    let value = value.and_then(|rest| rest.strip_suffix('\'')).filter(|text| !text.contains('\''));
    let bad = || error(StatusCode::BAD_REQUEST, &format!("cannot parse the search {search}"));
    value.map(str::to_owned).ok_or_else(|| Box::new(bad()))
}

fn page(kind: &str, query: &BTreeMap<String, String>, all: Vec<Value>) -> Response {
    let number = |name: &str, otherwise| {
        query.get(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (page, size): (usize, usize) = (number("page", 1), number("size", 100));
    let total = all.len();
    let items: Vec<Value> = all.into_iter().skip((page - 1) * size).take(size).collect();
    let body =
        json!({"kind": kind, "page": page, "size": items.len(), "total": total, "items": items});
    Json(body).into_response()
}

type Asked = Query<BTreeMap<String, String>>;

async fn organizations(Query(query): Asked) -> Response {
    let external_id = match searched(&query, "external_id") {
        Ok(value) => value,
        Err(refused) => return *refused,
    };
    let known = ACCOUNTS.iter().any(|(_, org, _)| *org == external_id);
    let one =
        json!({"kind": "Organization", "id": org_id(&external_id), "external_id": external_id});
    page("OrganizationList", &query, known.then_some(one).into_iter().collect())
}

async fn organization(Path(id): Path<String>) -> Response {
    let external_id = id.strip_prefix("org-").unwrap_or_default();
    Json(json!({"kind": "Organization", "id": id, "external_id": external_id})).into_response()
}

async fn accounts(State(world): State<Shared>, Query(query): Asked) -> Response {
    let username = match searched(&query, "username") {
        Ok(value) => value,
        Err(refused) => return *refused,
    };
    let found = ACCOUNTS.iter().filter(|(name, _, _)| *name == username);
    let terse = world.lock().terse;
    let items = found.map(|(name, org, banned)| {
        let mut organization = json!({"kind": "Organization", "id": org_id(org)});
        if !terse {
            organization["external_id"] = json!(org);
        }
        let id = format!("account-{name}");
        json!({"kind": "Account", "id": id, "username": name, "banned": banned, "organization": organization})
    });
    page("AccountList", &query, items.collect())
}

impl World {
    fn consumed(&self, offer: &Offer) -> i64 {
        let of_offer = |one: &&Subscription| {
            let resource = &one.request["resources"][0];
            one.status != "Deprovisioned"
                && one.request["product_id"] == offer.product
                && resource["billing_model"] == offer.billing_model
        };
        let held = self.subscriptions.iter().filter(of_offer);
        held.filter_map(|one| one.request["resources"][0]["count"].as_i64()).sum()
    }
}

async fn quota_cost(
    State(world): State<Shared>,
    Path(id): Path<String>,
    Query(query): Asked,
) -> Response {
    let world = world.lock();
    let detailed = query.get("fetchRelatedResources").is_some_and(|value| value == "true");
    // Of other products, so that there is more than one page.
    let mut items: Vec<Value> = (0..150)
        .map(|i| {
            let related = json!([{"product": "ANY", "resource_name": "addon", "billing_model": "any", "cost": 0}]);
            json!({"kind": "QuotaCost", "quota_id": format!("add-on|{i}"), "allowed": 7, "consumed": 7, "related_resources": related})
        })
        .collect();
    for offer in world.offers.iter().filter(|offer| org_id(offer.org) == id) {
        let mut item = json!({
            "kind": "QuotaCost",
            "quota_id": format!("cluster|rhinfra|{}|{}", offer.product, offer.billing_model),
            "organization_id": id,
            "allowed": offer.allowed,
            "consumed": world.consumed(offer),
        });
        if detailed {
            item["related_resources"] = json!([{
                "cloud_provider": "any", "resource_name": "rhosak", "resource_type": "cluster",
                "byoc": "rhinfra", "availability_zone_type": "any", "product": offer.product,
                "billing_model": offer.billing_model, "cost": 1,
            }]);
        }
        items.push(item);
    }
    page("QuotaCostList", &query, items)
}

async fn subscriptions(State(world): State<Shared>, Query(query): Asked) -> Response {
    let cluster_id = match searched(&query, "cluster_id") {
        Ok(value) => value,
        Err(refused) => return *refused,
    };
    let world = world.lock();
    let found = world.subscriptions.iter().filter(|one| one.cluster_id == cluster_id);
    let items = found.map(|one| {
        json!({"kind": "Subscription", "id": one.id, "cluster_id": one.cluster_id, "status": one.status})
    });
    page("SubscriptionList", &query, items.collect())
}

async fn unsubscribe(State(world): State<Shared>, Path(id): Path<String>) -> Response {
    let mut world = world.lock();
    let found = world.subscriptions.iter_mut().find(|one| one.id == id);
    match found {
        Some(one) if one.status != "Deprovisioned" => {
            one.status = "Deprovisioned";
            StatusCode::NO_CONTENT.into_response()
        }
        _ => error(StatusCode::NOT_FOUND, &format!("Subscription with id='{id}' not found")),
    }
}

async fn authorize(State(world): State<Shared>, Json(request): Json<Value>) -> Response {
    let mut world = world.lock();
    if world.mood == Mood::Busy {
        return error(StatusCode::TOO_MANY_REQUESTS, "slow down");
    }
    let resource = &request["resources"][0];
    let account = ACCOUNTS.iter().find(|(name, _, _)| request["account_username"] == *name);
    let Some((_, org, _)) = account else {
        return error(StatusCode::BAD_REQUEST, "Account does not exist");
    };
    let offer = world.offers.iter().find(|offer| {
        offer.org == *org
            && request["product_id"] == offer.product
            && resource["billing_model"] == offer.billing_model
    });
    let count = resource["count"].as_i64().unwrap_or(1);
    let enough = offer.is_some_and(|offer| world.consumed(offer) + count <= offer.allowed);
    if !enough {
        let body = json!({"allowed": false, "excess_resources": [resource], "organization_id": org_id(org)});
        let status = match world.mood {
            Mood::RefusesWith429 => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        return (status, Json(body)).into_response();
    }
    assert_eq!(request["reserve"], true);
    let id = format!("subscription-{}", world.subscriptions.len() + 1);
    let cluster_id = request["cluster_id"].as_str().unwrap_or_default().to_owned();
    world.subscriptions.push(Subscription {
        id: id.clone(),
        cluster_id,
        status: "Reserved",
        request,
    });
    if world.mood == Mood::LosesAnswers {
        return error(StatusCode::BAD_GATEWAY, "lost");
    }
    let subscription = json!({"kind": "Subscription", "id": id});
    Json(json!({"allowed": true, "excess_resources": [], "subscription": subscription}))
        .into_response()
}

async fn terms(Json(request): Json<Value>) -> Response {
    let [site, event] = ["site_code", "event_code"].map(|key| request[key].as_str());
    if (site, event) != (Some("ocm"), Some("onlineService")) {
        return error(StatusCode::BAD_REQUEST, "unknown site or event");
    }
    match request["account_username"].as_str() {
        Some("alice") => {
            Json(json!({"terms_available": true, "terms_required": false})).into_response()
        }
        Some("carol") => {
            let review = json!({"terms_available": true, "terms_required": true, "redirect_url": "https://terms.example"});
            Json(review).into_response()
        }
        _ => error(StatusCode::NOT_FOUND, "no such account"),
    }
}
