//! How long a connection may take to send the head of a request, or idle, without a timer for each
//! request.
//!
//! hyper starts a timer whenever it begins to wait for a head, and drops it when the head is there.
//! A timer of the runtime is entered into a shared table and taken out again, which costs more than
//! to read the head. So these timers only note when they end; the one timer that each connection
//! has ([`Deadline::next`]) sees to it that hyper is asked at that time, and hyper asks them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

/// Of one connection: when the head that it waits for, or last waited for, has to be there.
#[derive(Clone, Default)]
pub(super) struct Deadline(Arc<Mutex<Option<Instant>>>);

impl Deadline {
    /// When to ask hyper again. A head that comes in time leaves its deadline behind; the next
    /// one is later than `pause` from then.
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
        Box::pin(Noted(deadline))
    }
}

struct Noted(Instant);

impl Future for Noted {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if Instant::now() < self.0 { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Sleep for Noted {}
