//! Leases of secrets. The Vault of the tests has no engine that leases what is read (databases and
//! brokers are plugins that its build leaves out), so these are played by a small server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use kernel::secret::SecretSource;
use kernel::secret::vault::Config;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{Kept, LIMIT, assert_nothing_leaked, becomes, eventually};

#[derive(Default)]
struct Played {
    /// Users that were made: each reading makes one.
    users: AtomicU32,
    renewals: Mutex<Vec<String>>,
    /// How long a renewal extends a lease; none: it is refused.
    extends_s: Mutex<Option<u64>>,
}

async fn played() -> (Arc<Played>, Config) {
    let state = Arc::new(Played { extends_s: Mutex::new(Some(2)), ..Played::default() });
    let user = async |State(state): State<Arc<Played>>| {
        let n = state.users.fetch_add(1, Ordering::SeqCst) + 1;
        Json(json!({
            "lease_id": format!("lease-{n}"), "lease_duration": 2, "renewable": true,
            "data": {"user": format!("user-{n}"), "password": format!("hunter2-{n}")},
        }))
    };
    let renew = async |State(state): State<Arc<Played>>, Json(body): Json<Value>| {
        let lease = body["lease_id"].as_str().unwrap().to_owned();
        state.renewals.lock().push(lease.clone());
        match *state.extends_s.lock() {
            Some(s) => Ok(Json(json!({"lease_id": lease, "lease_duration": s, "renewable": true}))),
            None => Err((StatusCode::BAD_REQUEST, Json(json!({"errors": ["lease not found"]})))),
        }
    };
    let look_up = async || Json(json!({"data": {"ttl": 0, "renewable": false}}));
    let router = Router::new()
        .route("/v1/auth/token/lookup-self", get(look_up))
        .route("/v1/broker/creds/app", get(user))
        .route("/v1/sys/leases/renew", put(renew))
        .with_state(state.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (state, Config { address, token: "hunter2-root".into(), ..Config::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_and_when_it_cannot_be_both_fields_change_together() {
    let (vault, config) = played().await;
    let kept = Kept::new();
    kept.outbound.use_vault(&config).unwrap();
    let secret = |field: &str| {
        let text = format!("broker/creds/app#{field}");
        kept.outbound.secret("a.broker", &SecretSource::Vault(text.try_into().unwrap())).unwrap()
    };
    let (user, password) = (secret("user"), secret("password"));
    kept.outbound.read_secrets(LIMIT).await;
    let kept = kept.start();
    becomes(&user, "user-1").await;
    becomes(&password, "hunter2-1").await;
    let renewed = async |n: usize| {
        eventually("renewals", async || vault.renewals.lock().len() >= n).await;
    };
    renewed(2).await;
    assert_eq!(vault.users.load(Ordering::SeqCst), 1, "a renewal makes no new user");
    assert!(vault.renewals.lock().iter().all(|lease| lease == "lease-1"));

    // The lease is at its longest: it is extended by little, and a new one is needed.
    *vault.extends_s.lock() = Some(0);
    becomes(&user, "user-2").await;
    becomes(&password, "hunter2-2").await;
    *vault.extends_s.lock() = None;
    becomes(&user, "user-3").await;
    becomes(&password, "hunter2-3").await;
    drop(kept);
    assert_nothing_leaked();
}
