//! The REST API of every kind: public, for agents, for admins.

pub mod accounts;
pub mod admin;
pub mod agent;
pub mod clusters;
pub mod create;
pub mod errors;
pub mod gateway;
pub mod guard;
pub mod instances;
pub mod list;
pub mod metrics;
pub mod offers;
pub mod openapi;
pub mod own;
pub mod payload;
pub mod rendered;
pub mod reply;
pub mod router;
pub mod watch;

pub const UUID_PATTERN: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

/// Whether a text is a UUID in its usual form, lower case.
pub fn is_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let mut parts = text.split('-');
    lengths.iter().all(|length| {
        parts.next().is_some_and(|part| {
            part.len() == *length
                && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        })
    }) && parts.next().is_none()
}
