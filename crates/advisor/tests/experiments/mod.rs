//! Experiments on every store: requests for recommendations, deletion, uploads.

mod creation;
mod deletion;
mod requests;
mod uploads;
