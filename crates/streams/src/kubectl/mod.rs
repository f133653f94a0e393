//! The Kubernetes client of the command line: reads the current state and writes requests of users.
//! It needs no Mainstay server.

pub mod find;
pub mod logs;
pub mod read;
pub mod write;

use std::path::Path;
use std::time::Duration;

use kernel::{Error, Result};
use kubernetes::{HttpError, HttpRequest, kubeconfig};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::NamespacedName;
use crate::model::watch::Resource;
use crate::ports::kubernetes::paths;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Objects per page of a list.
const PAGE: usize = 500;

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) api: kubernetes::Client,
    /// The namespace of the context, or `default`.
    pub namespace: String,
}

impl Client {
    /// Connects by the given kubeconfig, the one that kubectl would use, or from within the
    /// cluster.
    pub async fn connect(file: Option<&Path>, context: Option<&str>) -> Result<Client> {
        kernel::outbound::install_tls();
        let config = match (file, context) {
            (None, None) => kube::Config::infer().await.map_err(|error| {
                let what = "cannot be used: name one with --kubeconfig FILE or KUBECONFIG, or run \
                            this in a cluster";
                Error::invalid("kubeconfig", format!("{what} ({error})"))
            })?,
            (file, context) => kubeconfig(file, context).await?,
        };
        let namespace = config.default_namespace.clone();
        let api = kubernetes::Client::new(config)?.with_timeout(REQUEST_TIMEOUT);
        Ok(Client { api, namespace })
    }

    /// Reads an object; none if it, or its kind, does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        not_found_as_none(self.send(HttpRequest::get(path.into())).await)
    }

    /// Lists all objects, page by page; none if the kind does not exist.
    pub async fn list(&self, path: &str, selector: &str) -> Result<Option<Vec<Value>>> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let page = HttpRequest::list(format!("{path}?limit={PAGE}{selector}{next}"), false);
            let page = not_found_as_none(self.send(page).await)?;
            let Some(mut page) = page else { return Ok(None) };
            if let Value::Array(more) = page["items"].take() {
                items.extend(more);
            }
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => next = format!("&continue={token}"),
                _ => return Ok(Some(items)),
            }
        }
    }

    /// Reads and parses an object; none if it does not exist or cannot be parsed.
    async fn object<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        object_name: &NamespacedName,
    ) -> Result<Option<T>> {
        let found = self.get(&paths::collection(resource).object(object_name)).await?;
        Ok(found.and_then(|raw| serde_json::from_value(raw).ok()))
    }

    async fn send(&self, request: HttpRequest) -> Result<Value> {
        let response = self.api.send(request).await.map_err(refused)?;
        serde_json::from_slice(&response)
            .map_err(|error| Error::unavailable("the API server", error))
    }
}

fn not_found_as_none(answer: Result<Value>) -> Result<Option<Value>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps the message of Kubernetes, which names the verb and the resource.
pub(crate) fn refused(error: HttpError) -> Error {
    let HttpError::Response(response) = error else {
        return Error::unavailable("the API server", error);
    };
    let message = response.to_string();
    match response.code {
        401 => Error::Forbidden(format!("the API server rejected the credentials: {message}")),
        403 => Error::Forbidden(message),
        404 => Error::NotFound(message),
        409 => Error::Conflict(message),
        400..=499 if response.code != 429 => {
            Error::Conflict(format!("the API server refused the request: {message}"))
        }
        _ => Error::unavailable("the API server", message),
    }
}
