//! Addresses of an environment: where people enter it, what is probed to see that it works, and what
//! is needed from outside.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::fields::{Fields, text, whole};
use crate::model::period::Period;
use crate::model::problem::Problems;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPoint {
    pub name: String,
    /// May have expressions over outputs.
    pub url: String,
}

/// A URL that is requested regularly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusEndpoint {
    pub name: String,
    /// May have expressions over outputs.
    pub url: String,
    pub interval: Period,
    pub timeout: Period,
    /// The HTTP status that means that all is well.
    pub expect: u32,
}

/// Something that the environment needs and does not manage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What is requested to see whether it is there.
    pub url: String,
    pub interval: Period,
}

const INTERVAL: Period = Period::seconds(60);
const TIMEOUT: Period = Period::seconds(10);

impl EntryPoint {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<EntryPoint> {
        let mut fields = Fields::new(path, value, problems)?;
        let name = fields.required("name", text);
        let url = fields.required("url", text);
        fields.finish();
        Some(EntryPoint { name: name?, url: url? })
    }
}

impl StatusEndpoint {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<StatusEndpoint> {
        let mut fields = Fields::new(path, value, problems)?;
        let name = fields.required("name", text);
        let url = fields.required("url", text);
        let interval = fields.read("interval", Period::read).unwrap_or(INTERVAL);
        let timeout = fields.read("timeout", Period::read).unwrap_or(TIMEOUT);
        let expect = fields.read("expect", whole(100..=599)).unwrap_or(200);
        if interval < Period::seconds(1) {
            fields.problem("interval", "is shorter than a second", "");
        }
        fields.finish();
        Some(StatusEndpoint { name: name?, url: url?, interval, timeout, expect })
    }
}

impl External {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<External> {
        let mut fields = Fields::new(path, value, problems)?;
        let description = fields.read("description", text).unwrap_or_default();
        let url = fields.required("url", text);
        let interval = fields.read("interval", Period::read).unwrap_or(INTERVAL);
        fields.finish();
        Some(External { description, url: url?, interval })
    }
}
