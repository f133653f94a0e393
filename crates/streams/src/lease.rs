//! Who acts: the holder of a Lease. Its version is the fence (of two who want it, one is refused),
//! and no clock but one's own is trusted: a holder is taken for gone when its Lease has not changed
//! for as long as it runs, counted from when that was seen.
//!
//! A holder stops acting some seconds before anyone else may begin, whether it can reach the API
//! server or not.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kernel::Ambient;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Answer, Call, Cluster, Lease, Refused};
use crate::model::Place;

#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    pub place: Place,
    pub holder: String,
    /// After so long without a change others may take it.
    pub duration: Duration,
    /// The holder acts for so long after it last asked successfully.
    pub act: Duration,
    /// How often it is renewed, and looked at by others.
    pub renew: Duration,
}

/// Whether this process may act, and how long.
pub struct Tenure {
    until: Mutex<Option<Instant>>,
    /// Since when; none if not.
    since: watch::Sender<Option<Timestamp>>,
}

impl Tenure {
    pub fn none() -> Tenure {
        Tenure { until: Mutex::new(None), since: watch::Sender::new(None) }
    }

    /// Of one that shares with nobody.
    pub fn endless(now: Timestamp) -> Tenure {
        let year = Duration::from_secs(365 * 24 * 3600);
        let until = Mutex::new(Some(Instant::now() + 100 * year));
        Tenure { until, since: watch::Sender::new(Some(now)) }
    }

    /// Until when this process may act; none if it may not.
    pub fn until(&self) -> Option<Instant> {
        self.until.lock().filter(|until| *until > Instant::now())
    }

    pub fn since(&self) -> watch::Receiver<Option<Timestamp>> {
        self.since.subscribe()
    }

    fn hold(&self, until: Instant, now: Timestamp) {
        *self.until.lock() = Some(until);
        self.since.send_if_modified(|since| match since {
            Some(_) => false,
            none => {
                *none = Some(now);
                true
            }
        });
    }

    fn end(&self) {
        *self.until.lock() = None;
        self.since.send_if_modified(|since| since.take().is_some());
    }
}

pub struct Campaign {
    pub cluster: Arc<dyn Cluster>,
    pub terms: Terms,
    pub ambient: Ambient,
    pub tenure: Arc<Tenure>,
}

/// What is known of the Lease.
#[derive(Default)]
struct Known {
    lease: Option<Lease>,
    /// When its present version was first seen.
    seen: Option<Instant>,
}

impl Campaign {
    /// Takes the Lease, keeps it and takes it again, until told to stop; then gives it back.
    pub async fn run(self, stop: CancellationToken) {
        let mut known = Known::default();
        loop {
            let pause = match self.tenure.until() {
                Some(until) => self.renew(&mut known, until).await,
                None => self.seek(&mut known).await,
            };
            let jitter = 0.8 + 0.4 * self.ambient.fraction();
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause.mul_f64(jitter)) => {}
            }
        }
        if self.tenure.until().is_some() {
            self.tenure.end();
            self.release(known).await;
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ambient.now().millis()).unwrap_or_default()
    }

    async fn write(&self, lease: Lease) -> Result<Lease, Refused> {
        match self.cluster.call(Call::WriteLease(self.terms.place.clone(), lease)).await? {
            Answer::Lease(Some(lease)) => Ok(lease),
            _ => Err(Refused::Away("the answer is none to a Lease".into())),
        }
    }

    async fn renew(&self, known: &mut Known, until: Instant) -> Duration {
        let Some(held) = known.lease.clone() else {
            self.lose("the Lease is not known");
            return Duration::ZERO;
        };
        let asked = Instant::now();
        let lease = Lease { renewed: self.now(), duration_s: self.duration_s(), ..held };
        match tokio::time::timeout_at(until, self.write(lease)).await {
            Ok(Ok(lease)) => {
                known.lease = Some(lease);
                self.tenure.hold(asked + self.terms.act, self.now());
                self.terms.renew
            }
            // Someone else wrote it, or removed it.
            Ok(Err(Refused::Conflict | Refused::NotFound | Refused::Exists)) => {
                match self.read().await {
                    // An earlier request of ours whose answer was lost.
                    Ok(Some(lease)) if lease.holder == self.terms.holder => {
                        known.lease = Some(lease);
                    }
                    Ok(lease) => {
                        let by = lease.map_or("nobody".into(), |lease| lease.holder);
                        self.lose(&format!("the Lease is held by {by}"));
                    }
                    Err(refused) => tracing::warn!(%refused, "the Lease cannot be read"),
                }
                Duration::ZERO
            }
            Ok(Err(refused)) => {
                tracing::warn!(%refused, "the Lease cannot be renewed");
                self.terms.renew / 4
            }
            Err(_) => {
                self.lose("it could not be renewed in time");
                Duration::ZERO
            }
        }
    }

    fn lose(&self, why: &str) {
        tracing::warn!(why, holder = self.terms.holder, "no longer the one that acts");
        self.tenure.end();
    }

    async fn read(&self) -> Result<Option<Lease>, Refused> {
        match self.cluster.call(Call::ReadLease(self.terms.place.clone())).await? {
            Answer::Lease(lease) => Ok(lease),
            _ => Err(Refused::Away("the answer is none to a Lease".into())),
        }
    }

    async fn seek(&self, known: &mut Known) -> Duration {
        // The time may have run out while nothing was asked.
        self.tenure.end();
        let there = match self.read().await {
            Ok(there) => there,
            Err(refused) => {
                tracing::warn!(%refused, lease = %self.terms.place, "the Lease cannot be read");
                return self.terms.renew;
            }
        };
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(|l| l.version.clone());
        if known.seen.is_none() || version(&known.lease) != version(&there) {
            known.seen = Some(Instant::now());
        }
        known.lease = there.clone();
        if let Some(lease) = &there {
            let runs = Duration::from_secs(lease.duration_s.max(1).unsigned_abs().into());
            let unchanged = known.seen.map_or(Duration::ZERO, |seen| seen.elapsed());
            if !lease.holder.is_empty() && unchanged < runs {
                return self.terms.renew.min(runs - unchanged + Duration::from_millis(50));
            }
        }
        self.acquire(known, there).await
    }

    async fn acquire(&self, known: &mut Known, there: Option<Lease>) -> Duration {
        let (asked, now) = (Instant::now(), self.now());
        let lease = Lease {
            version: there.as_ref().and_then(|lease| lease.version.clone()),
            holder: self.terms.holder.clone(),
            duration_s: self.duration_s(),
            acquired: now,
            renewed: now,
            transitions: there.map_or(0, |lease| lease.transitions.saturating_add(1)),
        };
        match self.write(lease).await {
            Ok(lease) if asked.elapsed() < self.terms.act => {
                tracing::info!(holder = self.terms.holder, "now the one that acts");
                known.lease = Some(lease);
                self.tenure.hold(asked + self.terms.act, now);
                self.terms.renew
            }
            Ok(_) => Duration::ZERO,
            Err(Refused::Conflict | Refused::Exists) => self.terms.renew,
            Err(refused) => {
                tracing::warn!(%refused, lease = %self.terms.place, "the Lease cannot be taken");
                self.terms.renew
            }
        }
    }

    /// So that the next one need not wait.
    async fn release(&self, known: Known) {
        let Some(held) = known.lease else { return };
        let lease = Lease { holder: String::new(), duration_s: 1, renewed: self.now(), ..held };
        match tokio::time::timeout(Duration::from_secs(5), self.write(lease)).await {
            Ok(Ok(_)) => tracing::info!("the Lease is given back"),
            Ok(Err(refused)) => tracing::warn!(%refused, "the Lease could not be given back"),
            Err(_) => tracing::warn!("the Lease could not be given back in time"),
        }
    }

    fn duration_s(&self) -> i32 {
        i32::try_from(self.terms.duration.as_secs()).unwrap_or(i32::MAX).max(1)
    }
}
