//! The types of the streams domain: classes, streams, requests, templates, Jobs. No I/O.

pub mod backfill_request;
pub mod class;
pub mod crd;
pub mod hash;
pub mod job;
pub mod meta;
pub mod observation;
pub mod phase;
pub mod settings;
pub mod spec_layout;
pub mod status;
pub mod stream;
pub mod template;
pub mod watch;

use std::fmt;
use std::sync::Arc;

pub use kubernetes::NamespacedName;

pub const GROUP: &str = "streaming.sneaksanddata.com";

/// Labels of Jobs.
pub const STREAM_ID: &str = "arcane/stream-id";
pub const STREAM_KIND: &str = "arcane/stream-kind";
pub const BACKFILLING: &str = "arcane/backfilling";
/// On Jobs and CronJobs: the hash of the configuration that they were made from.
pub const CONFIGURATION_HASH: &str = "configuration-hash";
/// On streams and Jobs of v1beta1: a requested or a reported state.
pub const STATE: &str = "arcane/state";
pub const CHECKSUM: &str = "stream.arcane.sneaksanddata.com/configuration-checksum";
pub const API_GROUP: &str = "stream.arcane.sneaksanddata.com/api-group";
pub const API_VERSION: &str = "stream.arcane.sneaksanddata.com/api-version";
pub const API_PLURAL: &str = "stream.arcane.sneaksanddata.com/api-plural-name";
/// On streams: a new value restarts the Job. On Jobs: the value that they were started with.
pub const RESTART: &str = "mainstay.io/restart";
/// On streams: `true` stops the operator from changing anything.
pub const PAUSE: &str = "mainstay.io/pause";
/// On streams: `true` restarts the stream after a failure, with growing delays.
pub const RECOVER: &str = "mainstay.io/recover";
/// On streams: consecutive failures and the time of the last, as in `3 2026-11-16T07:00:00Z`.
pub const RECOVERED: &str = "mainstay.io/recovered";
/// On streams: `template`, `secrets` or both, comma-separated: changes that restart the Job.
pub const RESTART_ON: &str = "mainstay.io/restart-on";
/// On Jobs: the hashes of the template and the secrets that they were made from.
pub const TEMPLATE_HASH: &str = "mainstay.io/template-hash";
pub const SECRETS_HASH: &str = "mainstay.io/secrets-hash";
/// On streams, set by the command line: the downtime that suspends them, and its start.
pub const DOWNTIME: &str = "arcane.sneaksanddata.com/downtime";
pub const DOWNTIME_BEGIN: &str = "arcane.sneaksanddata.com/downtime-begin-ts";

/// The version of the CRDs of a class and its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CrdVersion {
    /// `stream-classes` v1beta1, namespaced; annotations hold the desired state.
    V1Beta1,
    /// `streamclasses` v1, cluster-scoped; the current version.
    V1,
}

/// The name of a class, prefixed with `namespace/` if classes are namespaced.
pub type ClassName = Arc<str>;

/// Identifies a stream.
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
