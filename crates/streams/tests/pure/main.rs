//! The pure half: hashes, layouts, manifests and decisions, without any server.
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
