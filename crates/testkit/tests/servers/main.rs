//! Each real server, used through the client that Mainstay uses: write, read back, kill it, start
//! it again, read again.
#![expect(clippy::unwrap_used, reason = "a test")]

#[cfg(feature = "chromium")]
mod chromium;
mod consul;
#[cfg(feature = "kafka")]
mod kafka;
mod keycloak;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod loopback;
mod postgres;
mod prometheus;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "route53")]
mod route53;
mod terraform;
mod vault;
