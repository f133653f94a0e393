//! Reads and writes the Lease of leader election.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::{ApiError, Client, Collection, HttpRequest, NamespacedName, ObjectMeta};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// The resource version; none before it is created.
    pub version: Option<String>,
    pub holder: String,
    pub duration_s: i32,
    pub acquired: Timestamp,
    pub renewed: Timestamp,
    pub transitions: i32,
}

/// A Lease as the API server sends it.
#[derive(Deserialize)]
pub struct RawLease {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<i32>,
}

impl Client {
    pub async fn read_lease(
        &self,
        object_name: &NamespacedName,
    ) -> Result<Option<Lease>, ApiError> {
        match self.send(HttpRequest::get(Collection::leases().object(object_name))).await {
            Ok(response) => read(&response).map(Some),
            Err(error) => match error.into() {
                ApiError::NotFound => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Updates the version that was read, or creates the Lease if there is none. The resource
    /// version is the fence: a write with an older one is a conflict.
    pub async fn write_lease(
        &self,
        object_name: &NamespacedName,
        lease: &Lease,
        (label, value): (&str, &str),
    ) -> Result<Lease, ApiError> {
        let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": &*object_name.name,
                "namespace": &*object_name.namespace,
                "labels": { (label): value },
                "resourceVersion": lease.version,
            },
            "spec": {
                "holderIdentity": lease.holder,
                "leaseDurationSeconds": lease.duration_s.max(1),
                "acquireTime": time(lease.acquired),
                "renewTime": time(lease.renewed),
                "leaseTransitions": lease.transitions,
            },
        });
        let leases = Collection::leases();
        let request = match lease.version {
            Some(_) => HttpRequest::update(leases.object(object_name), &body),
            None => HttpRequest::create(leases.path(Some(&object_name.namespace)), &body),
        };
        read(&self.send(request).await?)
    }
}

fn read(response: &[u8]) -> Result<Lease, ApiError> {
    let raw: RawLease = serde_json::from_slice(response)
        .map_err(|error| ApiError::Unreachable(format!("invalid Lease: {error}")))?;
    Ok(raw.into())
}

impl From<RawLease> for Lease {
    fn from(RawLease { metadata, spec }: RawLease) -> Lease {
        Lease {
            version: Some(metadata.resource_version),
            holder: spec.holder_identity.unwrap_or_default(),
            duration_s: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time.unwrap_or_default(),
            renewed: spec.renew_time.unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }
}
