//! Reads and writes the Lease of leader election.

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::Kubernetes;
use super::http::HttpRequest;
use super::paths::Collection;
use crate::model::NamespacedName;
use crate::model::lease::Lease;
use crate::model::meta::RawMeta;
use crate::model::watch::ApiError;

/// The label by which the Lease is found, whatever its name.
pub const LABEL: (&str, &str) = ("mainstay.io/lease", "operator");

#[derive(Deserialize)]
pub struct Raw {
    pub metadata: RawMeta,
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

impl Kubernetes {
    pub async fn read_lease(
        &self,
        object_name: &NamespacedName,
    ) -> Result<Option<Lease>, ApiError> {
        match self.http(HttpRequest::get(Collection::leases().object(object_name))).await {
            Ok(answer) => read(&answer).map(Some),
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The resource version is the fence: a write with an older one is a conflict.
    pub async fn write_lease(
        &self,
        object_name: &NamespacedName,
        lease: &Lease,
    ) -> Result<Lease, ApiError> {
        let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": object_name.name,
                "namespace": object_name.namespace,
                "labels": { (LABEL.0): LABEL.1 },
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
        let http = match lease.version {
            Some(_) => HttpRequest::json(Method::PUT, leases.object(object_name), &body),
            None => {
                HttpRequest::json(Method::POST, leases.path(Some(&object_name.namespace)), &body)
            }
        };
        read(&self.http(http).await?)
    }
}

fn read(answer: &[u8]) -> Result<Lease, ApiError> {
    let raw: Raw = serde_json::from_slice(answer)
        .map_err(|error| ApiError::Unreachable(format!("invalid Lease: {error}")))?;
    Ok(raw.into())
}

impl From<Raw> for Lease {
    fn from(Raw { metadata, spec }: Raw) -> Lease {
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
