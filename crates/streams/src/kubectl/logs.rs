//! Reads the logs of a stream's containers.

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use kernel::{Error, Result};
use kubernetes::{HttpRequest, segment};
use serde_json::Value;

use super::find::FoundStream;
use super::{Client, refused};
use crate::model::watch::Resource;
use crate::ports::kubernetes::paths;

/// Which part of a log to read.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    pub follow: bool,
    /// The number of lines from the end; none for all.
    pub lines: Option<i64>,
    /// The container; none for the first one.
    pub container: Option<String>,
}

impl Client {
    /// The last pod of a stream's Job, or of the last run of its CronJob.
    pub async fn last_pod(&self, found: &FoundStream) -> Result<Option<(String, Vec<String>)>> {
        let object_name = found.object_name();
        let mut pods = self.pods(&object_name.namespace, &object_name.name).await?;
        if pods.is_empty() {
            let path = paths::collection(&Resource::Jobs).path(Some(&object_name.namespace));
            let jobs = self.list(&path, "").await?.unwrap_or_default();
            let of = |job: &&Value| {
                let owner = &job["metadata"]["ownerReferences"][0];
                owner["kind"] == "CronJob" && owner["name"] == *object_name.name
            };
            let made = |job: &&Value| job["metadata"]["creationTimestamp"].to_string();
            let last = jobs.iter().filter(of).max_by_key(made);
            if let Some(name) = last.and_then(|job| job["metadata"]["name"].as_str()) {
                pods = self.pods(&object_name.namespace, name).await?;
            }
        }
        let Some(pod) = pods.pop() else { return Ok(None) };
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let names = containers.filter_map(|container| Some(container["name"].as_str()?.to_owned()));
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(Some((name, names.collect())))
    }

    /// Passes each line of a pod's log to `line`.
    pub async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        tail: &Tail,
        line: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let mut path =
            format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?follow={}", tail.follow);
        if let Some(lines) = tail.lines {
            path.push_str(&format!("&tailLines={lines}"));
        }
        if let Some(container) = &tail.container {
            path.push_str(&format!("&container={}", segment(container)));
        }
        let response = self.api.open(HttpRequest::get(path)).await.map_err(refused)?;
        let chunks = response.into_body().into_data_stream().map_err(std::io::Error::other);
        let mut lines = chunks.into_async_read().lines();
        let cut = |error: std::io::Error| Error::unavailable("the log", error);
        while let Some(text) = lines.try_next().await.map_err(cut)? {
            line(&text)?;
        }
        Ok(())
    }
}
