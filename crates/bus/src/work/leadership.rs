//! Which replica relays: the one that holds the lease. The broker fences too, because a replica that
//! was paused does not know that its lease is over.

use std::sync::Arc;
use std::time::Duration;

use kernel::Store;
use kernel::change::LeaseFence;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// While the lease is not held, or could not be renewed, it is asked for at least this often.
const RETRY: Duration = Duration::from_secs(1);

/// How a process takes part.
#[derive(Debug, Clone)]
pub struct Terms {
    pub holder: String,
    pub ttl: Duration,
}

impl Terms {
    /// For the only process of an embedded store: the next start has the lease at once, because it has
    /// the same name.
    pub fn embedded() -> Terms {
        Terms { holder: "embedded".into(), ttl: Duration::from_secs(3600) }
    }

    /// For replicas: another takes over when the lease has run out.
    pub fn replica(name: String) -> Terms {
        Terms { holder: name, ttl: Duration::from_secs(3) }
    }

    /// How often a lease is renewed.
    fn every(&self) -> Duration {
        self.ttl / 6
    }

    /// How often it is asked for.
    fn retry(&self) -> Duration {
        self.every().min(RETRY)
    }
}

/// A lease that is held.
#[derive(Debug, Clone)]
pub struct Held {
    pub name: String,
    pub fence: i64,
    /// Cancelled when it is lost: stop at once.
    pub lost: CancellationToken,
    /// Cancelled when the server stops: finish what is in flight.
    pub stop: CancellationToken,
}

impl Held {
    pub fn fence(&self) -> LeaseFence {
        LeaseFence { name: self.name.clone(), fence: self.fence }
    }

    pub fn is_over(&self) -> bool {
        self.lost.is_cancelled() || self.stop.is_cancelled()
    }

    /// Waits before the store is asked again, or until the lease is over.
    pub async fn pause(&self) {
        tokio::select! {
            biased;
            () = self.over() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }

    /// Returns when the lease is lost or the server stops.
    pub async fn over(&self) {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => {}
            () = self.stop.cancelled() => {}
        }
    }
}

/// Runs `work` whenever this process holds the lease, until `stop`. `work` ends soon when the lease is
/// over.
pub async fn lead<F>(
    store: &Arc<dyn Store>,
    name: &str,
    terms: &Terms,
    stop: &CancellationToken,
    mut work: impl FnMut(Held) -> F,
) where
    F: Future<Output = ()>,
{
    while !stop.is_cancelled() {
        let asked = Instant::now();
        match store.lease(name, &terms.holder, terms.ttl).await {
            Ok(Some(lease)) => {
                let lost = CancellationToken::new();
                let held = Held { name: name.into(), fence: lease.fence, lost, stop: stop.clone() };
                tracing::info!(lease = name, fence = lease.fence, "became leader");
                let mut working = std::pin::pin!(work(held.clone()));
                tokio::select! {
                    biased;
                    () = &mut working => {}
                    () = renew(store, &held, terms, asked) => {
                        tracing::warn!(lease = name, "lost leadership");
                        held.lost.cancel();
                        working.await;
                    }
                }
                if !held.lost.is_cancelled()
                    && let Err(error) = store.unlease(name, lease.fence).await
                {
                    tracing::debug!(lease = name, %error, "releasing the lease failed");
                }
                if stop.is_cancelled() {
                    return;
                }
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(lease = name, %error, "asking for the lease failed"),
        }
        stop.run_until_cancelled(tokio::time::sleep(terms.retry())).await;
    }
}

/// Returns when the lease is lost: another has it, or the store has not renewed it in time.
async fn renew(store: &Arc<dyn Store>, held: &Held, terms: &Terms, asked: Instant) {
    let (mut renewed, mut wait) = (asked, terms.every());
    loop {
        tokio::time::sleep(wait).await;
        let asked = Instant::now();
        let until = renewed + terms.ttl;
        let renewing = store.lease(&held.name, &terms.holder, terms.ttl);
        match tokio::time::timeout_at(until, renewing).await {
            Ok(Ok(Some(lease))) if lease.fence == held.fence => {
                (renewed, wait) = (asked, terms.every());
            }
            Ok(Ok(_)) => return,
            Ok(Err(_)) if Instant::now() < until => wait = terms.retry(),
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
