//! The Kubernetes client of the command line: reads the current state and writes requests of users.
//! It needs no Mainstay server.

pub mod find;
pub mod logs;
pub mod read;
pub mod write;

use std::path::Path;
use std::time::Duration;

use kernel::{Error, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// Objects per page of a list.
const PAGE: usize = 500;

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) kube: kube::Client,
    /// The namespace of the context, or `default`.
    pub namespace: String,
}

impl Client {
    /// Connects by the given kubeconfig, the one that kubectl would use, or from within the
    /// cluster.
    pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client> {
        kernel::outbound::install_tls();
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
        let unusable =
            |error: &dyn std::fmt::Display| Error::invalid("kubeconfig", error.to_string());
        let mut config = match (kubeconfig, context) {
            (Some(file), _) => {
                let read = Kubeconfig::read_from(file).map_err(|e| unusable(&e))?;
                let config = kube::Config::from_custom_kubeconfig(read, &options).await;
                config.map_err(|e| unusable(&e))?
            }
            (None, Some(_)) => {
                let config = kube::Config::from_kubeconfig(&options).await;
                config.map_err(|e| unusable(&e))?
            }
            (None, None) => kube::Config::infer().await.map_err(|error| {
                let what = "cannot be used: name one with --kubeconfig FILE or KUBECONFIG, or run \
                            this in a cluster";
                Error::invalid("kubeconfig", format!("{what} ({error})"))
            })?,
        };
        config.connect_timeout = Some(CONNECT);
        let namespace = config.default_namespace.clone();
        let kube = kube::Client::try_from(config).map_err(|e| unusable(&e))?;
        Ok(Client { kube, namespace })
    }

    /// Wraps an existing client.
    pub fn over(kube: kube::Client, namespace: &str) -> Client {
        Client { kube, namespace: namespace.into() }
    }

    /// Reads an object; none if it, or its kind, does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        not_found_as_none(self.send("GET", path, "", None).await)
    }

    /// Lists all objects, page by page; none if the kind does not exist.
    pub async fn list(&self, path: &str, selector: &str) -> Result<Option<Vec<Value>>> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let query = format!("{path}?limit={PAGE}{selector}{next}");
            let Some(mut page) = self.get(&query).await? else { return Ok(None) };
            if let Value::Array(more) = page["items"].take() {
                items.extend(more);
            }
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => next = format!("&continue={token}"),
                _ => return Ok(Some(items)),
            }
        }
    }

    pub async fn create(&self, path: &str, manager: &str, body: &Value) -> Result<Value> {
        self.send("POST", &format!("{path}?fieldManager={manager}"), JSON, Some(body)).await
    }

    /// Applies a merge patch; none if the object does not exist.
    pub async fn merge(&self, path: &str, manager: &str, patch: &Value) -> Result<Option<Value>> {
        let path = format!("{path}?fieldManager={manager}");
        let merge = "application/merge-patch+json";
        not_found_as_none(self.send("PATCH", &path, merge, Some(patch)).await)
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let mut request = http::Request::builder().method(method).uri(path);
        if !content.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, content);
        }
        let request = request.body(bytes).map_err(|e| Error::internal("a request", e))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.kube.request::<Value>(request)).await {
            Ok(answer) => answer.map_err(refused),
            Err(late) => Err(Error::unavailable("the API server", late)),
        }
    }
}

const JSON: &str = "application/json";

fn not_found_as_none(answer: Result<Value>) -> Result<Option<Value>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps the message of Kubernetes, which names the verb and the resource.
pub(crate) fn refused(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => match status.code {
            401 => Error::Forbidden(format!(
                "the API server rejected the credentials: {}",
                status.message
            )),
            403 => Error::Forbidden(status.message.clone()),
            404 => Error::NotFound(status.message.clone()),
            409 => Error::Conflict(status.message.clone()),
            400..=499 if status.code != 429 => {
                Error::Conflict(format!("the API server refused the request: {}", status.message))
            }
            _ => Error::unavailable("the API server", status.message.clone()),
        },
        other => Error::unavailable("the API server", other),
    }
}
