//! Requests to change something that come from more than one place: the API, the local data plane,
//! the server's start, a changed file.

pub mod account;
pub mod agent_report;
pub mod catalogue_reload;
pub mod cluster;
pub mod cluster_spec;
pub mod declared_clusters;
pub mod instance;
pub mod instance_create;
pub mod local_cluster;
pub mod source;
