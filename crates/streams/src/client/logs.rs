//! What a stream's containers write.

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kernel::{Error, Result};
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;

use super::find::Found;
use super::{Client, refused};

/// How much, and from where.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    pub follow: bool,
    /// Only this many lines from the end.
    pub lines: Option<i64>,
    /// The first one, if it is not named.
    pub container: Option<String>,
}

impl Client {
    /// The pod that a stream ran in last, if there is one: of its Job, or of the last run of its
    /// schedule.
    pub async fn last_pod(&self, found: &Found) -> Result<Option<(String, Vec<String>)>> {
        let place = found.place();
        let mut pods = self.pods(&place.namespace, &place.name).await?;
        if pods.is_empty() {
            let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", place.namespace);
            let jobs = self.list(&jobs, "").await?.unwrap_or_default();
            let of = |job: &&Value| {
                let owner = &job["metadata"]["ownerReferences"][0];
                owner["kind"] == "CronJob" && owner["name"] == *place.name
            };
            let made = |job: &&Value| job["metadata"]["creationTimestamp"].to_string();
            let last = jobs.iter().filter(of).max_by_key(made);
            if let Some(name) = last.and_then(|job| job["metadata"]["name"].as_str()) {
                pods = self.pods(&place.namespace, name).await?;
            }
        }
        let Some(pod) = pods.pop() else { return Ok(None) };
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let names = containers.filter_map(|container| Some(container["name"].as_str()?.to_owned()));
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(Some((name, names.collect())))
    }

    /// Gives each line of a pod's log to `line`, until there are no more.
    pub async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        tail: &Tail,
        line: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.kube.clone(), namespace);
        let params = LogParams {
            follow: tail.follow,
            tail_lines: tail.lines,
            container: tail.container.clone(),
            ..LogParams::default()
        };
        let mut lines = pods.log_stream(pod, &params).await.map_err(refused)?.lines();
        let cut = |error: std::io::Error| Error::unavailable("the log", error);
        while let Some(text) = lines.try_next().await.map_err(cut)? {
            line(&text)?;
        }
        Ok(())
    }
}
