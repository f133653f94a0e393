//! Limits failed sign-ins of one address, before a signature is checked or a secret compared.

use std::net::IpAddr;

use parking_lot::Mutex;

use crate::rate_limit::RateLimiter;
use crate::{Error, Result, Timestamp};

/// Counts attempts by address. One that succeeds is given back, so that only failures add up.
pub struct Attempts {
    limiter: Option<Mutex<RateLimiter<String>>>,
}

impl Attempts {
    /// Allows `burst` failures at once, and `per_s` in the long run. 0: any number.
    pub fn new(per_s: u32, burst: u32) -> Attempts {
        let limiter = || Mutex::new(RateLimiter::new(f64::from(per_s), burst));
        Attempts { limiter: (per_s > 0).then(limiter) }
    }

    /// Counts an attempt. One without an address is of this process.
    pub fn begin(&self, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        let (Some(limiter), Some(address)) = (&self.limiter, address) else { return Ok(()) };
        let taken = limiter.lock().take(network(address), now);
        taken.map_err(|retry_after_s| Error::Busy { retry_after_s })
    }

    /// Takes back an attempt that did not fail.
    pub fn forgive(&self, address: Option<IpAddr>) {
        if let (Some(limiter), Some(address)) = (&self.limiter, address) {
            limiter.lock().give_back(&network(address));
        }
    }
}

/// The name of an address for limits. IPv6 clients are limited by network: each has a whole one.
pub fn network(address: IpAddr) -> String {
    match address {
        IpAddr::V6(ip) => ip.segments()[..4].iter().map(|part| format!("{part:x}:")).collect(),
        IpAddr::V4(ip) => ip.to_string(),
    }
}
