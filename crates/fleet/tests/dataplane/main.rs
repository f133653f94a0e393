//! The local data plane, with real processes. This very binary is also the program that most
//! instances run: see `program`.
#![expect(clippy::unwrap_used, reason = "a test")]

mod adopt;
mod kafka;
mod program;
mod remove;
mod supervise;
mod support;
