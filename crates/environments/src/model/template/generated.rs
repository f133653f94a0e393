//! Secrets and certificates that are generated for an environment. Their values go to Vault and
//! nowhere else; a template says only what they are like and where they go.

use kernel::Labels;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::fields::{Fields, items, text, whole};
use crate::model::period::Period;
use crate::model::problem::Problems;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratedSecret {
    /// The path in the KV store.
    pub path: String,
    pub key: String,
    /// In characters.
    pub length: u32,
    /// Generated again after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<Period>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The path in the KV store.
    pub path: String,
    pub common_name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The role of the PKI engine that issues it.
    pub role: String,
    pub ttl: Period,
    /// Further fields of the request to the issuer.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub subject: Labels,
}

/// Thirty days.
const CERTIFICATE_TTL: Period = Period::seconds(30 * 24 * 3600);

impl GeneratedSecret {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<GeneratedSecret> {
        let mut fields = Fields::new(path, value, problems)?;
        let place = fields.required("path", text);
        let key = fields.read("key", text).unwrap_or_else(|| "value".into());
        let length = fields.read("length", whole(12..=4096)).unwrap_or(32);
        let rotate = fields.read("rotate", Period::read);
        fields.finish();
        Some(GeneratedSecret { path: place?, key, length, rotate })
    }
}

impl Certificate {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Certificate> {
        let mut fields = Fields::new(path, value, problems)?;
        let place = fields.required("path", text);
        let common_name = fields.required("common_name", text);
        let names =
            fields.read("names", |path, value, problems| Some(items(path, value, problems, text)));
        let role = fields.required("role", text);
        let ttl = fields.read("ttl", Period::read).unwrap_or(CERTIFICATE_TTL);
        let subject =
            fields.entries("subject", |_, path, value, problems| text(path, value, problems));
        fields.finish();
        Some(Certificate {
            path: place?,
            common_name: common_name?,
            names: names.unwrap_or_default(),
            role: role?,
            ttl,
            subject: subject.into_iter().collect(),
        })
    }
}
