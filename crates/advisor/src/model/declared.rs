//! Profiles and layers that users declare: JSON documents with a name of their own. They are kept in
//! the form in which the existing service lists them, which is accepted back.

use kernel::labels;
use kernel::typed::{Kind, NoStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::Invalid;
use super::tenant::Phase;
use super::{layer, profile};

labels! {
    /// What is declared, by the kind of its object.
    pub enum Sort {
        /// How containers and namespaces are measured.
        Metric = "metric-profile",
        /// How the containers of a cluster are found.
        Metadata = "metadata-profile",
        /// As a metric profile, for results that are uploaded.
        Performance = "performance-profile",
        /// A language runtime or framework, and how it is recognised.
        Layer = "layer",
    }
}

/// Of one document. Each event of its object carries it.
pub const DOCUMENT_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    pub name: String,
    pub document: Value,
}

impl Kind for Declared {
    type Phase = Phase;
    type Status = NoStatus;
    const RECONCILED: bool = false;
}

impl Sort {
    pub fn plural(self) -> &'static str {
        match self {
            Sort::Metric => "metric-profiles",
            Sort::Metadata => "metadata-profiles",
            Sort::Performance => "performance-profiles",
            Sort::Layer => "layers",
        }
    }

    /// As messages of the existing service name it: `metric profile`.
    pub fn words(self) -> String {
        self.label().replace('-', " ")
    }

    /// Reads a document that was sent.
    pub fn read(self, value: Value) -> Result<Declared, Invalid> {
        let bytes = value.to_string().len();
        if bytes > DOCUMENT_BYTES_MAX {
            let problem = format!("has {bytes} bytes; at most {DOCUMENT_BYTES_MAX} are accepted");
            return Err(Invalid::new("", format!("the document {problem}")));
        }
        match self {
            Sort::Metric => profile::metric(value),
            Sort::Metadata => profile::metadata(value),
            Sort::Performance => profile::performance(value),
            Sort::Layer => layer::read(value),
        }
    }
}
