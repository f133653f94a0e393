//! The local data plane, with real processes. This binary is also the program of most instances: see
//! `program`.
#![expect(clippy::unwrap_used, reason = "a test")]

mod adopt;
mod kafka;
mod program;
mod remove;
mod supervise;
mod support;
