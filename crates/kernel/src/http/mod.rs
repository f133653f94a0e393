//! The REST surface: routes with their permission, limits, errors, documents.
//!
//! A domain builds [`Routes`], each with the [`crate::identity::Action`] it needs, and handlers
//! that take [`Caller`], [`Context`], [`Body`], [`Params`] and return [`crate::Error`]s.
//! [`router`] puts the kernel's own [`api`] beside them and everything else around them.

pub mod api;
mod config;
mod context;
mod deadline;
mod envelope;
mod explain;
mod extract;
mod failure;
mod guard;
mod idempotency;
mod later;
mod rate;
mod router;
mod routes;
mod serve;
mod sight;
mod surface;
mod tls;

pub use config::{Config, Tls};
pub use context::{Caller, Context, RequestContext};
pub use extract::{Body, NAME_CHARS_MAX, Params, PathId, PathKey, read_body, valid_name};
pub use failure::{ErrorMapper, Failure, status};
pub use guard::sign_in;
pub use idempotency::{Idempotency, Once, carry_out};
pub use later::Later;
pub use router::router;
pub use routes::{Routes, Rule};
pub use serve::{listen, serve};
pub use sight::{narrow, sees};
pub use surface::Surface;
