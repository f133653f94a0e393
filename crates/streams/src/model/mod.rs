//! The types of the streams domain: classes, streams, requests, templates, Jobs. No I/O.

pub mod backfill_request;
pub mod class;
pub mod crd;
pub mod hash;
pub mod job;
pub mod lease;
pub mod meta;
pub mod observation;
pub mod phase;
pub mod schedule;
pub mod settings;
pub mod spec_layout;
pub mod status;
pub mod stream;
pub mod template;
pub mod watch;

use std::fmt;
use std::sync::Arc;

pub const GROUP: &str = "streaming.sneaksanddata.com";

/// Labels of Jobs.
pub const STREAM_ID: &str = "arcane/stream-id";
pub const STREAM_KIND: &str = "arcane/stream-kind";
pub const BACKFILLING: &str = "arcane/backfilling";
/// Of Jobs and CronJobs: the configuration that they were made from.
pub const CONFIGURATION_HASH: &str = "configuration-hash";
/// Of streams and Jobs in v1beta1: what is wanted, or what has happened.
pub const STATE: &str = "arcane/state";
pub const CHECKSUM: &str = "stream.arcane.sneaksanddata.com/configuration-checksum";
pub const API_GROUP: &str = "stream.arcane.sneaksanddata.com/api-group";
pub const API_VERSION: &str = "stream.arcane.sneaksanddata.com/api-version";
pub const API_PLURAL: &str = "stream.arcane.sneaksanddata.com/api-plural-name";
/// Of streams: a new value starts the Job anew. A Job says which value it was started with.
pub const RESTART: &str = "mainstay.io/restart";
/// Of streams: `true` and the operator leaves everything of it as it is.
pub const PAUSE: &str = "mainstay.io/pause";
/// Of streams: `true` and what failed is started again, later each time.
pub const RECOVER: &str = "mainstay.io/recover";
/// Of streams: how often it has been started again, as in `3 2026-11-16T07:00:00Z`.
pub const RECOVERED: &str = "mainstay.io/recovered";
/// Of streams: `template`, `secrets` or both, with a comma: what else starts the Job anew.
pub const RESTART_ON: &str = "mainstay.io/restart-on";
/// Of Jobs: what the template and the secrets were when it was made.
pub const TEMPLATE_HASH: &str = "mainstay.io/template-hash";
pub const SECRETS_HASH: &str = "mainstay.io/secrets-hash";
/// Of streams, by the command line: the downtime that it is part of, and since when.
pub const DOWNTIME: &str = "arcane.sneaksanddata.com/downtime";
pub const DOWNTIME_BEGIN: &str = "arcane.sneaksanddata.com/downtime-begin-ts";

/// Which of the two lines of CRDs a class is of: they differ in names, not in what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CrdVersion {
    /// `stream-classes` v1beta1, in a namespace; annotations say what is wanted.
    V1Beta1,
    /// `streamclasses` v1, for the cluster; the live line.
    V1,
}

impl CrdVersion {
    /// What its templates are called in paths.
    pub fn templates(self) -> &'static str {
        match self {
            CrdVersion::V1 => "streamingjobtemplates",
            CrdVersion::V1Beta1 => "streaming-job-templates",
        }
    }
}

/// A namespace and a name in it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl NamespacedName {
    pub fn new(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A class: its name, after `namespace/` where classes are in one.
pub type ClassName = Arc<str>;

/// Who a stream is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub class: ClassName,
    pub object_name: NamespacedName,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class, self.object_name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
