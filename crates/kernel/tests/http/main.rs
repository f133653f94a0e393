//! The REST surface: in process for what it answers, over a socket for what a listener adds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod document;
mod events;
mod listener;
mod objects;
mod own;
mod replicas;
mod surface;
mod tls;
mod work;
mod world;
