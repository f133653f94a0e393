//! The kernel's own routes: objects and search, events, audit, the queue, health.

mod audit;
mod commands;
mod doc;
mod events;
mod feed;
mod health;
mod objects;
mod schedules;
mod schema;
mod search;
mod work;

use std::time::Duration;

use super::{Config, Routes};
use crate::{Error, Result};

pub fn routes(config: &Config) -> Routes {
    health::routes(config)
        .merge(doc::routes())
        .merge(objects::routes())
        .merge(search::routes())
        .merge(events::routes())
        .merge(audit::routes())
        .merge(work::routes())
        .merge(commands::routes())
        .merge(schedules::routes())
}

/// Returns the page size that was requested, up to `max`.
fn limit(requested: Option<usize>, max: usize) -> Result<usize> {
    match requested {
        None => Ok(max.min(50)),
        Some(n) if (1..=max).contains(&n) => Ok(n),
        Some(_) => Err(Error::invalid("limit", format!("must be 1 to {max}"))),
    }
}

/// Returns how long the client wants to wait, up to `max_s`.
fn wait(field: &str, requested_s: u64, max_s: u64) -> Result<Duration> {
    if requested_s > max_s {
        return Err(Error::invalid(field, format!("must be at most {max_s}")));
    }
    Ok(Duration::from_secs(requested_s))
}
