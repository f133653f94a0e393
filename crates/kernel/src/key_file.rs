//! Keys of an installation: files that are created on first start and that all replicas share.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{Ambient, Error, Result};

pub const KEY_BYTES: usize = 32;

/// Reads the key in `file`, or creates it. `field` is the setting that names the file.
pub fn open(file: &Path, field: &str, ambient: &Ambient) -> Result<Vec<u8>> {
    let unusable = |error: std::io::Error| {
        Error::internal(format!("the key file {} cannot be used", file.display()), error)
    };
    match std::fs::read_to_string(file) {
        Ok(text) => {
            let key = URL_SAFE_NO_PAD.decode(text.trim()).unwrap_or_default();
            if key.len() < KEY_BYTES {
                let why = format!("must hold {KEY_BYTES} bytes or more in base64url");
                return Err(Error::invalid(field, format!("{} {why}", file.display())));
            }
            Ok(key)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = ambient.random_bytes::<KEY_BYTES>().to_vec();
            let text = format!("{}\n", URL_SAFE_NO_PAD.encode(&key));
            if crate::files::create(file, text.as_bytes(), 0o600).map_err(unusable)? {
                Ok(key)
            } else {
                // Another process was faster.
                open(file, field, ambient)
            }
        }
        Err(error) => Err(unusable(error)),
    }
}
