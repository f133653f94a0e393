//! What every domain builds on: the store and its queue, the driver, events and audit, identity,
//! HTTP, outbound calls, telemetry. Knows no domain.
//!
//! Start with [`Change`]: it names everything that one decision writes. [`Store::commit_all`]
//! takes many of them, [`admission`] decides each, and the [`driver`] makes new ones.

pub mod admission;
pub mod ambient;
pub mod app;
pub mod audit_archive;
pub mod backoff;
pub mod backup;
pub mod blob;
pub mod change;
pub mod command;
pub mod driver;
pub mod error;
pub mod event_presenter;
pub mod event_tail;
pub mod file_watch;
pub mod files;
pub mod health;
pub mod http;
pub mod identity;
pub mod informer;
pub mod installation;
pub mod key_file;
pub mod kind;
pub mod label;
pub mod leash;
pub mod log;
pub mod object;
pub mod outbound;
pub mod query;
pub mod queue;
mod rate_limit;
pub mod relay;
pub mod schedule;
pub mod secret;
pub mod store;
pub mod telemetry;
pub mod typed;
pub mod wait;

pub use ambient::{Ambient, Timestamp};
pub use app::{App, AppState, Domain, Running};
pub use backoff::Backoff;
pub use change::{Change, Lane, Refusal};
pub use error::{Class, Error, Result};
pub use object::{Json, Key, Labels, Object};
pub use query::ObjectQuery;
pub use store::Store;
pub use typed::{Draft, Typed};
