//! The REST API, against the recorded answers of the existing service.

mod bulk;
mod callers;
mod datasources;
mod differences;
mod experiments;
mod golden;
mod hostile;
mod lists;
mod metadata;
mod pages;
mod pairs;
mod profiles;
mod requests;
mod results;
pub mod shape;
