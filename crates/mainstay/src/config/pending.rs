//! Sections whose structs are the kernel's: stands in until the kernel has them.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    pub body_bytes_max: usize,
    pub tls_cert_file: Option<String>,
}

impl Default for Http {
    fn default() -> Http {
        Http { body_bytes_max: 1 << 20, tls_cert_file: None }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Outbound {}
