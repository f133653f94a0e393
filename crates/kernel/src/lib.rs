//! What every domain stands on: the store and its queue, the driver, events and audit, identity,
//! HTTP, the one way out to other systems, telemetry. Knows no domain.
//!
//! Start with [`Change`]: it names everything that one decision writes. [`Store::commit_all`]
//! takes many of them, [`admit`] decides each, and the [`driver`] makes new ones.

pub mod admit;
pub mod ambient;
pub mod app;
pub mod change;
pub mod driver;
pub mod error;
pub mod find;
pub mod http;
pub mod identity;
pub mod log;
pub mod mirror;
pub mod object;
pub mod outbound;
pub mod queue;
pub mod store;
pub mod telemetry;
pub mod waiter;

pub use ambient::{Ambient, Timestamp};
pub use app::{App, Domain, Parts};
pub use change::{Change, Lane, Refusal};
pub use error::{Class, Error, Result};
pub use find::Find;
pub use object::{Json, Key, Labels, Object};
pub use store::Store;
