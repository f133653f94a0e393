//! Clusters: registered, provisioned, installed, watched, deleted; on a real API server and with
//! the real Terraform. And the agents of both kinds that serve them.

#![expect(clippy::unwrap_used, reason = "a test")]

mod agent;
mod declared;
mod kubernetes;
mod life;
mod scale;
mod sign_in;
mod stage;
mod terraform;
