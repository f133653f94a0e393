//! The requests that the operator makes to the API server. `ports::kubernetes` implements the
//! trait; the tests have a simulated server.

use ::kubernetes::{Lease, LeaseApi};
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::model::NamespacedName;
use crate::model::job::JobResult;
use crate::model::watch::{ApiError, Object, Resource, WatchEvent};

#[async_trait]
pub trait ApiServer: Send + Sync + 'static {
    /// Lists a resource and then watches it, without end. After a gap it lists again.
    fn watch(&self, resource: Resource) -> BoxStream<'static, WatchEvent>;

    async fn send(&self, request: Request) -> Result<Response, ApiError>;
}

#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A complete manifest.
    Create(Resource, Value),
    Delete {
        resource: Resource,
        object_name: NamespacedName,
        /// A precondition: only the object with this uid is deleted.
        uid: Box<str>,
        /// Deletes dependents first: the object stays until its pods have ended.
        foreground: bool,
    },
    /// A merge patch.
    Patch {
        resource: Resource,
        object_name: NamespacedName,
        patch: Value,
        /// Of the status subresource.
        status: bool,
    },
    /// How a deleted Job ended, by the events that it left.
    JobResult {
        object_name: NamespacedName,
        uid: Box<str>,
    },
    ReadLease(NamespacedName),
    /// Updates the version that was read, or creates the Lease if there is none.
    WriteLease(NamespacedName, Lease),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// The object after the request.
    Object(Box<Object>),
    /// The request was carried out and there is no object to return.
    Empty,
    JobResult(JobResult),
    Lease(Option<Lease>),
}

/// Leader election sends its requests like all others, so that they are counted.
#[async_trait]
impl LeaseApi for dyn ApiServer {
    async fn read_lease(&self, object_name: &NamespacedName) -> Result<Option<Lease>, ApiError> {
        match self.send(Request::ReadLease(object_name.clone())).await? {
            Response::Lease(lease) => Ok(lease),
            _ => Err(ApiError::Unreachable("unexpected response to a Lease request".into())),
        }
    }

    async fn write_lease(
        &self,
        object_name: &NamespacedName,
        lease: Lease,
    ) -> Result<Lease, ApiError> {
        match self.send(Request::WriteLease(object_name.clone(), lease)).await? {
            Response::Lease(Some(lease)) => Ok(lease),
            _ => Err(ApiError::Unreachable("unexpected response to a Lease request".into())),
        }
    }
}
