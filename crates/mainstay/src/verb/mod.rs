//! The verbs: one file each, with its arguments and what it does.

pub mod account;
pub mod advise;
pub mod agent;
pub mod audit;
mod audit_archive;
pub mod backup;
pub mod bus;
pub mod cluster;
pub mod config;
pub mod crds;
pub mod docs;
pub mod events;
pub mod get;
pub mod instance;
pub mod leash;
pub mod list;
pub mod login;
pub mod migrate;
pub mod operator;
pub mod plane;
pub mod schedule;
pub mod shell;
pub mod stream;
pub mod token;
pub mod work;
