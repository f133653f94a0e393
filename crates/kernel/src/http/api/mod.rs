//! The kernel's own routes: objects and search, events, audit, the queue, the process itself.

mod audit;
mod doc;
mod event_stream;
mod events;
mod feed;
mod objects;
mod schema;
mod search;
mod self_;
mod work;

use super::{Config, Routes};
use crate::{Error, Result};

pub fn routes(config: &Config) -> Routes {
    self_::routes(config)
        .merge(doc::routes())
        .merge(objects::routes())
        .merge(search::routes())
        .merge(events::routes())
        .merge(audit::routes())
        .merge(work::routes())
}

/// How many results a page has: as asked for, up to `max`.
fn limit(asked: Option<usize>, max: usize) -> Result<usize> {
    match asked {
        None => Ok(max.min(50)),
        Some(n) if (1..=max).contains(&n) => Ok(n),
        Some(_) => Err(Error::invalid("limit", format!("must be 1 to {max}"))),
    }
}
