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
                    Err(refused) => {
                        tracing::warn!(%refused, "the Lease cannot be read");
                        return self.terms.renew / 4;
                    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use futures::stream::BoxStream;

    use super::*;
    use crate::cluster::{Told, Watched};

    /// One Lease, which knows versions, and a link to it that can be cut.
    #[derive(Default)]
    struct Server {
        lease: Mutex<(u64, Option<Lease>)>,
    }

    struct Link {
        server: Arc<Server>,
        cut: AtomicBool,
    }

    #[async_trait]
    impl Cluster for Link {
        fn watch(&self, _: Watched) -> BoxStream<'static, Told> {
            Box::pin(futures::stream::pending())
        }

        async fn call(&self, call: Call) -> Result<Answer, Refused> {
            if self.cut.load(Ordering::SeqCst) {
                return std::future::pending().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut lease = self.server.lease.lock();
            match call {
                Call::ReadLease(_) => Ok(Answer::Lease(lease.1.clone())),
                Call::WriteLease(_, new) => {
                    let version = lease.1.as_ref().and_then(|lease| lease.version.clone());
                    if version != new.version {
                        return Err(Refused::Conflict);
                    }
                    lease.0 += 1;
                    let new = Lease { version: Some(lease.0.to_string()), ..new };
                    lease.1 = Some(new.clone());
                    Ok(Answer::Lease(Some(new)))
                }
                _ => Err(Refused::NotFound),
            }
        }
    }

    struct Candidate {
        link: Arc<Link>,
        tenure: Arc<Tenure>,
        stop: CancellationToken,
        _task: tokio::task::JoinHandle<()>,
    }

    fn candidate(server: &Arc<Server>, name: &str, seed: u64) -> Candidate {
        let link = Arc::new(Link { server: server.clone(), cut: AtomicBool::new(false) });
        let (tenure, stop) = (Arc::new(Tenure::none()), CancellationToken::new());
        // Clocks that are hours apart: nobody compares them.
        let hours = i64::try_from(seed).unwrap() * 3_600_000;
        let campaign = Campaign {
            cluster: link.clone(),
            terms: Terms {
                place: Place::new("n", "lease"),
                holder: name.into(),
                duration: Duration::from_secs(10),
                act: Duration::from_secs(7),
                renew: Duration::from_secs(2),
            },
            ambient: Ambient::seeded(move || kernel::Timestamp(hours), seed),
            tenure: tenure.clone(),
        };
        let _task = tokio::spawn(campaign.run(stop.clone()));
        Candidate { link, tenure, stop, _task }
    }

    impl Candidate {
        fn acts(&self) -> bool {
            self.tenure.until().is_some()
        }
    }

    /// How long until one acts; it is watched all the time that no two do.
    async fn until_acts(wanted: &Candidate, other: &Candidate) -> Duration {
        let begun = Instant::now();
        while !wanted.acts() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody takes over");
            assert!(!(wanted.acts() && other.acts()), "both act");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!other.acts(), "both act");
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_it_back_is_followed_within_seconds() {
        let server = Arc::new(Server::default());
        let first = candidate(&server, "a", 1);
        let second = candidate(&server, "b", 9);
        while !first.acts() && !second.acts() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (one, other) = if first.acts() { (first, second) } else { (second, first) };
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(one.acts() && !other.acts(), "it is kept");
        one.stop.cancel();
        let took = until_acts(&other, &one).await;
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(server.lease.lock().1.as_ref().unwrap().transitions, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_cut_off_stops_before_another_begins() {
        let server = Arc::new(Server::default());
        let first = candidate(&server, "a", 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(first.acts());
        let second = candidate(&server, "b", 30);
        tokio::time::sleep(Duration::from_secs(5)).await;
        first.link.cut.store(true, Ordering::SeqCst);
        let took = until_acts(&second, &first).await;
        assert!(took > Duration::from_secs(5) && took < Duration::from_secs(20), "{took:?}");
        // Back again, it finds that it has been followed.
        first.link.cut.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(second.acts() && !first.acts());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_someone_removed_is_made_again() {
        let server = Arc::new(Server::default());
        let first = candidate(&server, "a", 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.lease.lock().1 = None;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(first.acts());
        assert!(server.lease.lock().1.is_some());
    }
}
