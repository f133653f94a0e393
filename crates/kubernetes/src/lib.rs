//! The one Kubernetes client: connecting, requests, discovery, server-side apply, list and watch,
//! leader election, and the keyed work queue of controllers. Knows no domain.
//!
//! Start with [`Client`]; [`Client::watch`] keeps a caller informed about a [`Collection`].

mod client;
mod collection;
mod connect;
mod discovery;
mod dynamic;
mod http;
mod leader_election;
mod lease;
mod multi_namespace;
mod objects;
mod queue;
mod watch;

pub use client::Client;
pub use collection::{Collection, segment};
pub use connect::{in_cluster, kubeconfig, kubeconfig_text};
pub use dynamic::ApplyOptions;
pub use http::{ApiError, ErrorResponse, HttpError, HttpRequest};
pub use leader_election::{ElectionConfig, LeaderElection, Leadership, LeaseApi};
pub use lease::{Lease, RawLease};
pub use multi_namespace::merge;
pub use objects::{
    ManagedFields, NamespacedName, ObjectMeta, ObjectRef, OwnerReference, Revision, covers,
};
pub use queue::{Lane, Outcome, Queue};
pub use watch::{Decoded, ListOptions, WatchEvent};
