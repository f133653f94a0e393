//! The circuit breaker: a state machine without its own clock, so that the driver and the
//! simulator can run it too.
//!
//! Closed admits every call and counts failures. Open rejects calls for a while, longer
//! each time in a row. Half-open admits one probe, whose result closes or opens it again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Backoff, Timestamp};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Opens after this many failures in a row.
    pub failures_in_row: u32,
    /// Opens if this share of the window's calls failed, once there were `window_calls_min`.
    pub failure_ratio: f64,
    pub window_calls_min: u32,
    pub window_ms: u64,
    /// How long it stays open the first time; doubles each time in a row.
    pub open_ms: u64,
    pub open_max_ms: u64,
    /// A probe that has not reported by then is given up, and another may go.
    pub probe_ms: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            failures_in_row: 5,
            failure_ratio: 0.5,
            window_calls_min: 20,
            window_ms: 10_000,
            open_ms: 1_000,
            open_max_ms: 60_000,
            probe_ms: 30_000,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Breaker {
    config: Config,
    state: State,
    /// Changes with every change of phase; reports of calls from before are ignored.
    epoch: u64,
    /// How often it has opened since it was last closed.
    opened: u32,
    /// Why the last call failed, for the errors of those that it rejects.
    pub last_failure: String,
}

#[derive(Debug, Clone)]
enum State {
    Closed(Window),
    Open { until: Timestamp },
    HalfOpen { probe_until: Timestamp },
}

#[derive(Debug, Clone)]
struct Window {
    began: Timestamp,
    calls: u32,
    failures: u32,
    in_row: u32,
}

impl Window {
    fn new(began: Timestamp) -> Window {
        Window { began, calls: 0, failures: 0, in_row: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    Closed,
    Open,
    HalfOpen,
}

/// A permit for one call; report its outcome with [`Breaker::report`].
#[derive(Debug)]
#[must_use = "report how the call ended"]
pub struct Permit {
    epoch: u64,
}

impl Breaker {
    pub fn new(config: Config) -> Breaker {
        // The window begins with the first report.
        let state = State::Closed(Window::new(Timestamp(0)));
        Breaker { config, state, epoch: 0, opened: 0, last_failure: String::new() }
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            State::Closed(_) => Phase::Closed,
            State::Open { .. } => Phase::Open,
            State::HalfOpen { .. } => Phase::HalfOpen,
        }
    }

    /// A permit for one call, or how long to wait before asking again (never zero).
    pub fn admit(&mut self, now: Timestamp) -> Result<Permit, Duration> {
        let (until, longest) = match &self.state {
            State::Closed(_) => return Ok(Permit { epoch: self.epoch }),
            State::Open { until } => (*until, self.open_for()),
            State::HalfOpen { probe_until } => (*probe_until, self.probe_for()),
        };
        // If the clock was set back, `until` may be far ahead: never wait longer than intended.
        let until = until.min(now.plus(longest));
        if now < until {
            match &mut self.state {
                State::Open { until: at } | State::HalfOpen { probe_until: at } => *at = until,
                State::Closed(_) => {}
            }
            return Err(now.until(until));
        }
        self.enter(State::HalfOpen { probe_until: now.plus(self.probe_for()) });
        Ok(Permit { epoch: self.epoch })
    }

    /// Reports how a permitted call ended. A refusal by the other system is not a failure.
    pub fn report(&mut self, permit: Permit, worked: bool, now: Timestamp) {
        if permit.epoch != self.epoch {
            return;
        }
        match (&mut self.state, worked) {
            (State::Closed(window), _) => {
                let window_end = window.began.plus(Duration::from_millis(self.config.window_ms));
                if now < window.began || now >= window_end {
                    *window = Window { in_row: window.in_row, ..Window::new(now) };
                }
                window.calls += 1;
                window.failures += u32::from(!worked);
                window.in_row = if worked { 0 } else { window.in_row + 1 };
                let share = f64::from(window.failures) / f64::from(window.calls);
                let in_row = window.in_row >= self.config.failures_in_row;
                let too_many = window.calls >= self.config.window_calls_min
                    && share >= self.config.failure_ratio;
                if !worked && (in_row || too_many) {
                    self.open(now);
                }
            }
            (State::HalfOpen { .. }, true) => {
                self.opened = 0;
                self.enter(State::Closed(Window::new(now)));
            }
            (State::HalfOpen { .. }, false) => self.open(now),
            (State::Open { .. }, _) => {}
        }
    }

    fn open(&mut self, now: Timestamp) {
        self.opened = self.opened.saturating_add(1);
        self.enter(State::Open { until: now.plus(self.open_for()) });
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }

    fn open_for(&self) -> Duration {
        let ms = |ms: u64| Duration::from_millis(ms.max(1));
        let (first, longest) = (ms(self.config.open_ms), ms(self.config.open_max_ms));
        Backoff { first, longest }.without_jitter(self.opened.saturating_sub(1))
    }

    fn probe_for(&self) -> Duration {
        Duration::from_millis(self.config.probe_ms.max(1))
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
