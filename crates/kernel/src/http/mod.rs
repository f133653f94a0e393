//! The REST API: routes with their permission, limits, errors, documents.
//!
//! A domain builds [`Routes`], each with the [`crate::identity::Action`] it needs, and handlers
//! that take [`Caller`], [`Context`], [`Body`], [`Params`] and return [`crate::Error`]s. An API with
//! a wire format of its own is a [`Mount`] of such routes. [`router`] adds the kernel's own [`api`]
//! and the request pipeline.

pub mod api;
mod auth;
mod command_request;
mod config;
mod context;
mod deadline;
mod deferred;
mod event_stream;
mod extract;
mod failure;
mod input_errors;
mod mount;
mod pipeline;
mod router;
mod routes;
mod serve;
mod service;
mod tls;
mod visibility;

pub use auth::DenyWith;
pub use command_request::{
    CommandRequest, CommandSender, respond as respond_to_command, respond_with,
};
pub use config::{Config, REPORT_BYTES_MAX, Tls};
pub use context::{Caller, Context, RequestContext};
pub use deferred::Deferred;
pub use event_stream::{EventSource, encode as encode_event, event_stream};
pub use extract::{Body, NAME_CHARS_MAX, Params, PathId, PathKey, valid_name};
pub use failure::{ErrorMapper, status};
pub use input_errors::json as parse_json;
pub use mount::{Api, Call, Mount, Operation, Route, RouteTable};
pub use router::router;
pub use routes::{Routes, Rule};
pub use serve::{listen, serve};
pub use service::HttpService;
pub use visibility::{can_see, restrict};
