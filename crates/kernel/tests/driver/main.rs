//! The real driver on every store, with small workers that do what the test says.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fairness;
mod handover;
mod long;
mod outcomes;
mod stage;
mod widgets;
