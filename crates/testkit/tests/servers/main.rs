//! Each real server, used through the client that Mainstay uses: write, read back, kill it, start
//! it again, read again.
#![expect(clippy::unwrap_used, reason = "a test")]

mod chromium;
mod consul;
mod kubernetes;
mod loopback;
mod postgres;
mod route53;
mod terraform;
mod vault;
