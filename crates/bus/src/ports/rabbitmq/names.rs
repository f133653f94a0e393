//! Names and numbers of AMQP.

use kernel::{Error, Result};
use lapin::ErrorKind;
use lapin::types::ShortString;

/// Reply codes of the broker.
pub const ACCESS_REFUSED: u16 = 403;
pub const NOT_FOUND: u16 = 404;
pub const RESOURCE_LOCKED: u16 = 405;

/// The reply code of the broker, if it was the broker that refused.
pub fn reply_code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

/// A name for the protocol, which has no more than 255 bytes. `what` is for the error.
pub fn short(what: &str, name: &str) -> Result<ShortString> {
    ShortString::try_new(name).map_err(|_| {
        let why = format!("must have at most 255 bytes, but has {}", name.len());
        Error::invalid(what, why)
    })
}
