//! What the end-to-end tests share: servers that can be started, killed and asked, clients that
//! write down what was acknowledged to them, and the check that all of it is still so.

pub mod account;
pub mod client;
pub mod load;
pub mod place;
pub mod server;
pub mod wire;

use std::time::{Duration, Instant};

pub use client::{Answer, Client};
pub use server::{Plan, Server};

/// Long enough for a busy machine; whatever takes longer hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits for a condition, not for a time.
pub async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < DEADLINE, "{what} does not come within {DEADLINE:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
