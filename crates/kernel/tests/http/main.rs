//! The REST API: in process for its responses, over a socket for what a listener adds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod audit;
mod commands;
mod document;
mod events;
mod listener;
mod mount;
mod objects;
mod pipeline;
mod replicas;
mod schedules;
mod server;
mod tls;
mod work;
