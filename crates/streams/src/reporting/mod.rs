//! Reports from operators to a Mainstay server: the format, the sender and the receiver.

pub mod api;
pub mod report;
pub mod reporter;
