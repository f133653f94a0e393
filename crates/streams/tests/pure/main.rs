//! Tests without a server: hashes, layouts, manifests and decisions.
#![expect(clippy::unwrap_used, reason = "a test")]

mod again;
mod apply;
mod converge;
mod decisions;
mod every;
mod golden;
mod hashes;
mod layouts;
mod manifests;
mod mended;
mod messages;
mod world;
