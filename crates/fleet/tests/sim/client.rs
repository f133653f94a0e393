//! A user: creates instances, deletes some, and records what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use kernel::identity::Principal;
use kernel::identity::builtin::{Kind, Signer};
use kernel::{Ambient, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::sim::Broken;
use tower::ServiceExt as _;

use super::replica::{URL, key_dir};
use super::{ORGS, Sim};

/// The state of a deletion.
#[derive(Clone, Copy, PartialEq)]
pub enum Deletion {
    None,
    /// Not acknowledged: it may be deleted or not.
    Requested,
    Acknowledged,
}

/// What clients got acknowledged.
#[derive(Default)]
pub struct Ledger {
    pub created: Mutex<BTreeMap<String, Deletion>>,
    pub refused: Mutex<usize>,
}

fn token(sim: &Sim, org: &str, user: &str) -> String {
    // Issued long ago: clocks are set back at times.
    let issued = Timestamp(sim.world.now().0 - 86_400_000);
    let ambient = Ambient::seeded(move || issued, 1);
    let signer = Signer::open(&Default::default(), key_dir(), URL, ambient).unwrap();
    let who = Principal { subject: user.into(), org: org.into(), ..Principal::default() };
    signer.issue(&who, "sim", Duration::from_secs(7 * 86_400), Kind::Access).unwrap()
}

pub async fn run(sim: Arc<Sim>, number: usize) {
    let org = ORGS[number % ORGS.len()];
    let token = token(&sim, org, &format!("user{number}"));
    let mut mine: Vec<String> = Vec::new();
    let mut created = 0;
    while !sim.world.calm.is_cancelled() {
        tokio::time::sleep(sim.world.millis(100, 8_000)).await;
        if !mine.is_empty() && sim.world.unlucky(0.45) {
            let id = mine.swap_remove(sim.world.pick(mine.len()));
            let path = format!("/{id}?async=true");
            sim.ledger.created.lock().insert(id.clone(), Deletion::Requested);
            // Repeated until it is acknowledged: a deletion is idempotent.
            loop {
                match send(&sim, "DELETE", &path, &token, Value::Null).await {
                    Some((202, _)) | Some((404, _)) => break,
                    _ => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            }
            sim.ledger.created.lock().insert(id, Deletion::Acknowledged);
            continue;
        }
        created += 1;
        // Few names, so that two clients request the same one.
        let name = format!("k{}", sim.world.pick(6));
        let body = json!({"name": name, "cloud_provider": "aws", "region": "us-east-1"});
        let key = format!("{number}-{created}");
        match create(&sim, &token, &key, body).await {
            Some((202, response)) => {
                let id = response["id"].as_str().unwrap().to_owned();
                sim.ledger.created.lock().insert(id.clone(), Deletion::None);
                mine.push(id);
            }
            Some((403 | 409, _)) => *sim.ledger.refused.lock() += 1,
            Some((400 | 401 | 500, response)) => {
                let broken = Broken(format!("a client got {response}"));
                sim.world.broken.lock().get_or_insert(broken);
            }
            _ => {}
        }
    }
}

/// Repeats with the same key until there is a response, so that it is done once.
async fn create(sim: &Sim, token: &str, key: &str, body: Value) -> Option<(u16, Value)> {
    for _ in 0..50 {
        let request = request("POST", "?async=true", token, &body).header("idempotency-key", key);
        match exchange(sim, request, &body).await {
            Some((503, _)) | None => tokio::time::sleep(Duration::from_secs(1)).await,
            response => return response,
        }
    }
    None
}

async fn send(
    sim: &Sim,
    method: &str,
    path: &str,
    token: &str,
    body: Value,
) -> Option<(u16, Value)> {
    exchange(sim, request(method, path, token, &body), &body).await
}

fn request(method: &str, path: &str, token: &str, _: &Value) -> axum::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(format!("/api/kafkas_mgmt/v1/kafkas{path}"))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
}

async fn exchange(
    sim: &Sim,
    request: axum::http::request::Builder,
    body: &Value,
) -> Option<(u16, Value)> {
    let replica = sim.replicas.any(&sim.world)?;
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = async {
        let response = replica.router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    };
    // A crashed process never responds.
    tokio::time::timeout(Duration::from_secs(120), response).await.ok()
}
