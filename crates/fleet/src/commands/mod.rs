//! Requests to change something that come from more than one place: the API, the local data plane,
//! the start of the server, a file that changed.

pub mod agent_report;
pub mod catalogue_reload;
pub mod declared_clusters;
pub mod local_cluster;
