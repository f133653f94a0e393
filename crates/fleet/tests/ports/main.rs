//! The fleet's ports against the real systems, or the nearest available substitute.

#![expect(clippy::unwrap_used, reason = "a test")]

mod ams;
mod dns;
mod prometheus;
mod rotation;
mod sso;

use std::sync::Arc;

use kernel::Ambient;
use kernel::outbound::{Config, Outbound};

fn outbound() -> Outbound {
    Outbound::new(Config::default(), Ambient::system(), Arc::new(|_| ())).unwrap()
}

/// The message of an error with its sources.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        text = format!("{text}: {below}");
        source = below.source();
    }
    text
}
