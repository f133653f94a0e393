//! The timeout for the head of a request and for idle connections, without a timer per request.
//!
//! hyper starts a timer whenever it waits for a head, and drops it when the head has arrived.
//! Registering a timer with the runtime and removing it again costs more than reading the head. So
//! these timers only record their deadline; the single timer of each connection
//! ([`Deadline::next`]) polls hyper at that time, and hyper polls them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

/// The deadline of one connection for the head that it waits for, or last waited for.
#[derive(Clone, Default)]
pub(super) struct Deadline(Arc<Mutex<Option<Instant>>>);

impl Deadline {
    /// Returns when to poll hyper again. A head that arrived in time leaves its deadline in the
    /// past; the next one is at least `pause` later.
    pub(super) fn next(&self, pause: Duration) -> Instant {
        let now = Instant::now();
        self.0.lock().filter(|deadline| *deadline > now).unwrap_or(now + pause)
    }
}

impl Timer for Deadline {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        *self.0.lock() = Some(deadline);
        Box::pin(LazySleep(deadline))
    }
}

struct LazySleep(Instant);

impl Future for LazySleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if Instant::now() < self.0 { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Sleep for LazySleep {}
