//! The JSON of the existing service. Its numbers, names and nesting are kept; the order of keys
//! within an object carries no meaning.

pub mod experiment;
pub mod job;
pub mod read;
pub mod recommendation;
pub mod webhook;

pub use job::{ExperimentView, NoNotices, outcome, summary, wire_time};
pub use recommendation::{Element, Elements, Subject};
