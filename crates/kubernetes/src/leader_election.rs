//! Leader election with a Lease. The resource version is the fence: of two candidates one gets a
//! conflict. Clocks of other processes are not trusted: a Lease has expired when it has not changed
//! for its duration, measured from when that version was first observed.
//!
//! A leader stops acting some seconds before another may start, also when it cannot reach the API
//! server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use kernel::Ambient;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{ApiError, Lease, NamespacedName};

/// Reads and writes Leases.
#[async_trait]
pub trait LeaseApi: Send + Sync {
    async fn read_lease(&self, object_name: &NamespacedName) -> Result<Option<Lease>, ApiError>;

    /// Updates the version that was read, or creates the Lease if there is none.
    async fn write_lease(
        &self,
        object_name: &NamespacedName,
        lease: Lease,
    ) -> Result<Lease, ApiError>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ElectionConfig {
    pub object_name: NamespacedName,
    pub holder: String,
    /// How long a Lease must be unchanged before another candidate may take it.
    pub duration: Duration,
    /// How long the leader may act after its last successful renewal.
    pub renew_deadline: Duration,
    /// The interval of renewals and of attempts to acquire.
    pub retry_period: Duration,
}

/// Whether this process is the leader, and until when.
pub struct Leadership {
    until: Mutex<Option<Instant>>,
    /// Since when this process leads; none if it does not.
    since: watch::Sender<Option<Timestamp>>,
}

impl Leadership {
    pub fn none() -> Leadership {
        Leadership { until: Mutex::new(None), since: watch::Sender::new(None) }
    }

    /// The leadership of a single replica without a Lease.
    pub fn permanent(now: Timestamp) -> Leadership {
        let year = Duration::from_secs(365 * 24 * 3600);
        let until = Mutex::new(Some(Instant::now() + 100 * year));
        Leadership { until, since: watch::Sender::new(Some(now)) }
    }

    /// Until when this process may act; none if it does not lead.
    pub fn until(&self) -> Option<Instant> {
        self.until.lock().filter(|until| *until > Instant::now())
    }

    pub fn since(&self) -> watch::Receiver<Option<Timestamp>> {
        self.since.subscribe()
    }

    fn extend(&self, until: Instant, now: Timestamp) {
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

pub struct LeaderElection<A: LeaseApi + ?Sized> {
    pub api: Arc<A>,
    pub config: ElectionConfig,
    pub ambient: Ambient,
    pub leadership: Arc<Leadership>,
}

/// The last observed Lease.
#[derive(Default)]
struct Known {
    lease: Option<Lease>,
    /// When this version was first observed.
    observed_at: Option<Instant>,
}

impl<A: LeaseApi + ?Sized> LeaderElection<A> {
    /// Acquires and renews the Lease until `stop`; then releases it.
    pub async fn run(self, stop: CancellationToken) {
        let mut known = Known::default();
        loop {
            let pause = match self.leadership.until() {
                Some(until) => self.renew(&mut known, until).await,
                None => self.try_acquire(&mut known).await,
            };
            let jitter = 0.8 + 0.4 * self.ambient.fraction();
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause.mul_f64(jitter)) => {}
            }
        }
        if self.leadership.until().is_some() {
            self.leadership.end();
            self.release(known).await;
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ambient.now().millis()).unwrap_or_default()
    }

    async fn write(&self, lease: Lease) -> Result<Lease, ApiError> {
        self.api.write_lease(&self.config.object_name, lease).await
    }

    async fn renew(&self, known: &mut Known, until: Instant) -> Duration {
        let Some(held) = known.lease.clone() else {
            self.step_down("the Lease is unknown");
            return Duration::ZERO;
        };
        let requested_at = Instant::now();
        let lease = Lease { renewed: self.now(), duration_s: self.duration_s(), ..held };
        match tokio::time::timeout_at(until, self.write(lease)).await {
            Ok(Ok(lease)) => {
                known.lease = Some(lease);
                self.leadership.extend(requested_at + self.config.renew_deadline, self.now());
                self.config.retry_period
            }
            // Another process wrote or deleted the Lease.
            Ok(Err(ApiError::Conflict | ApiError::NotFound | ApiError::AlreadyExists)) => {
                match self.read().await {
                    // An earlier request of ours succeeded and its response was lost.
                    Ok(Some(lease)) if lease.holder == self.config.holder => {
                        known.lease = Some(lease);
                    }
                    Ok(lease) => {
                        let by = lease.map_or("nobody".into(), |lease| lease.holder);
                        self.step_down(&format!("the Lease is held by {by}"));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "reading the Lease failed");
                        return self.config.retry_period / 4;
                    }
                }
                Duration::ZERO
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "renewing the Lease failed");
                self.config.retry_period / 4
            }
            Err(_) => {
                self.step_down("renewing the Lease timed out");
                Duration::ZERO
            }
        }
    }

    fn step_down(&self, why: &str) {
        tracing::warn!(why, lease = %self.config.object_name, holder = self.config.holder, "lost leadership");
        self.leadership.end();
    }

    async fn read(&self) -> Result<Option<Lease>, ApiError> {
        self.api.read_lease(&self.config.object_name).await
    }

    async fn try_acquire(&self, known: &mut Known) -> Duration {
        // The leadership may have expired since the last request.
        self.leadership.end();
        let current = match self.read().await {
            Ok(current) => current,
            Err(error) => {
                tracing::warn!(%error, lease = %self.config.object_name, "reading the Lease failed");
                return self.config.retry_period;
            }
        };
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(|l| l.version.clone());
        if known.observed_at.is_none() || version(&known.lease) != version(&current) {
            known.observed_at = Some(Instant::now());
        }
        known.lease = current.clone();
        if let Some(lease) = &current {
            let duration = Duration::from_secs(lease.duration_s.max(1).unsigned_abs().into());
            let unchanged =
                known.observed_at.map_or(Duration::ZERO, |observed_at| observed_at.elapsed());
            if !lease.holder.is_empty() && unchanged < duration {
                return self
                    .config
                    .retry_period
                    .min(duration - unchanged + Duration::from_millis(50));
            }
        }
        self.acquire(known, current).await
    }

    async fn acquire(&self, known: &mut Known, current: Option<Lease>) -> Duration {
        let (requested_at, now) = (Instant::now(), self.now());
        let lease = Lease {
            version: current.as_ref().and_then(|lease| lease.version.clone()),
            holder: self.config.holder.clone(),
            duration_s: self.duration_s(),
            acquired: now,
            renewed: now,
            transitions: current.map_or(0, |lease| lease.transitions.saturating_add(1)),
        };
        match self.write(lease).await {
            Ok(lease) if requested_at.elapsed() < self.config.renew_deadline => {
                tracing::info!(lease = %self.config.object_name, holder = self.config.holder, "became leader");
                known.lease = Some(lease);
                self.leadership.extend(requested_at + self.config.renew_deadline, now);
                self.config.retry_period
            }
            Ok(_) => Duration::ZERO,
            Err(ApiError::Conflict | ApiError::AlreadyExists) => self.config.retry_period,
            Err(error) => {
                tracing::warn!(%error, lease = %self.config.object_name, "acquiring the Lease failed");
                self.config.retry_period
            }
        }
    }

    /// Releases the Lease so that the next leader need not wait for its expiry.
    async fn release(&self, known: Known) {
        let Some(held) = known.lease else { return };
        let lease = Lease { holder: String::new(), duration_s: 1, renewed: self.now(), ..held };
        match tokio::time::timeout(Duration::from_secs(5), self.write(lease)).await {
            Ok(Ok(_)) => tracing::info!("released the Lease"),
            Ok(Err(error)) => tracing::warn!(%error, "releasing the Lease failed"),
            Err(_) => tracing::warn!("releasing the Lease timed out"),
        }
    }

    fn duration_s(&self) -> i32 {
        i32::try_from(self.config.duration.as_secs()).unwrap_or(i32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A server with one Lease, and a connection to it that can be cut.
    #[derive(Default)]
    struct Server {
        lease: Mutex<(u64, Option<Lease>)>,
    }

    struct Link {
        server: Arc<Server>,
        cut: AtomicBool,
    }

    impl Link {
        async fn connected(&self) {
            if self.cut.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[async_trait]
    impl LeaseApi for Link {
        async fn read_lease(&self, _: &NamespacedName) -> Result<Option<Lease>, ApiError> {
            self.connected().await;
            Ok(self.server.lease.lock().1.clone())
        }

        async fn write_lease(&self, _: &NamespacedName, new: Lease) -> Result<Lease, ApiError> {
            self.connected().await;
            let mut lease = self.server.lease.lock();
            let version = lease.1.as_ref().and_then(|lease| lease.version.clone());
            if version != new.version {
                return Err(ApiError::Conflict);
            }
            lease.0 += 1;
            let new = Lease { version: Some(lease.0.to_string()), ..new };
            lease.1 = Some(new.clone());
            Ok(new)
        }
    }

    struct Candidate {
        link: Arc<Link>,
        leadership: Arc<Leadership>,
        stop: CancellationToken,
        _task: tokio::task::JoinHandle<()>,
    }

    fn candidate(server: &Arc<Server>, name: &str, seed: u64) -> Candidate {
        let link = Arc::new(Link { server: server.clone(), cut: AtomicBool::new(false) });
        let (leadership, stop) = (Arc::new(Leadership::none()), CancellationToken::new());
        // The candidates' clocks are hours apart: nothing compares them.
        let hours = i64::try_from(seed).unwrap() * 3_600_000;
        let election = LeaderElection {
            api: link.clone(),
            config: ElectionConfig {
                object_name: NamespacedName::new("n", "lease"),
                holder: name.into(),
                duration: Duration::from_secs(10),
                renew_deadline: Duration::from_secs(7),
                retry_period: Duration::from_secs(2),
            },
            ambient: Ambient::seeded(move || kernel::Timestamp(hours), seed),
            leadership: leadership.clone(),
        };
        let _task = tokio::spawn(election.run(stop.clone()));
        Candidate { link, leadership, stop, _task }
    }

    impl Candidate {
        fn leads(&self) -> bool {
            self.leadership.until().is_some()
        }
    }

    /// Waits until a candidate leads, and asserts all the time that only one does.
    async fn until_leads(wanted: &Candidate, other: &Candidate) -> Duration {
        let begun = Instant::now();
        while !wanted.leads() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no candidate takes over");
            assert!(!(wanted.leads() && other.leads()), "two leaders");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!other.leads(), "two leaders");
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_taken_over_within_seconds() {
        let server = Arc::new(Server::default());
        let first = candidate(&server, "a", 1);
        let second = candidate(&server, "b", 9);
        while !first.leads() && !second.leads() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (one, other) = if first.leads() { (first, second) } else { (second, first) };
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(one.leads() && !other.leads(), "the leader stays");
        one.stop.cancel();
        let took = until_leads(&other, &one).await;
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(server.lease.lock().1.as_ref().unwrap().transitions, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_a_connection_stops_before_another_starts() {
        let server = Arc::new(Server::default());
        let first = candidate(&server, "a", 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(first.leads());
        let second = candidate(&server, "b", 30);
        tokio::time::sleep(Duration::from_secs(5)).await;
        first.link.cut.store(true, Ordering::SeqCst);
        let took = until_leads(&second, &first).await;
        assert!(took > Duration::from_secs(5) && took < Duration::from_secs(20), "{took:?}");
        // After the connection is back it finds that another leads.
        first.link.cut.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(second.leads() && !first.leads());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_lease_is_created_again() {
        let server = Arc::new(Server::default());
        let first = candidate(&server, "a", 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.lease.lock().1 = None;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(first.leads());
        assert!(server.lease.lock().1.is_some());
    }
}
