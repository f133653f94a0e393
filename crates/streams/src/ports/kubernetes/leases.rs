//! The Lease that says who acts, as Kubernetes writes it.

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::Kubernetes;
use super::http::Ask;
use super::paths::Collection;
use crate::cluster::{Lease, Refused};
use crate::model::Place;
use crate::model::meta::RawMeta;

/// By this label whoever asks finds it, whatever its name is.
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
    pub async fn read_lease(&self, place: &Place) -> Result<Option<Lease>, Refused> {
        match self.ask(Ask::get(Collection::leases().object(place))).await {
            Ok(answer) => read(&answer).map(Some),
            Err(Refused::NotFound) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// The version is the fence: whoever read an older one is refused.
    pub async fn write_lease(&self, place: &Place, lease: &Lease) -> Result<Lease, Refused> {
        let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": place.name,
                "namespace": place.namespace,
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
        let ask = match lease.version {
            Some(_) => Ask::json(Method::PUT, leases.object(place), &body),
            None => Ask::json(Method::POST, leases.path(Some(&place.namespace)), &body),
        };
        read(&self.ask(ask).await?)
    }
}

fn read(answer: &[u8]) -> Result<Lease, Refused> {
    let raw: Raw = serde_json::from_slice(answer)
        .map_err(|error| Refused::Away(format!("the Lease cannot be read: {error}")))?;
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
