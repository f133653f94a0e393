//! Reads everything that explains a stream. What the user may not read is left out.

use futures::join;
use jiff::Timestamp;
use kernel::{Error, Result};
use kubernetes::{Collection, Lease, RawLease};
use serde_json::Value;

use super::Client;
use super::find::FoundStream;
use crate::explain::{Event, OperatorState, StreamFacts};
use crate::model::backfill_request::BackfillRequest;
use crate::model::job::{CronJob, Job};
use crate::model::meta::Revision;
use crate::model::template::Template;
use crate::model::watch::Resource;
use crate::model::{DOWNTIME_BEGIN, NamespacedName};
use crate::ports::kubernetes::{LEASE_LABEL, paths};

/// The number of events that are shown.
const EVENTS_MAX: usize = 20;

impl Client {
    pub async fn facts(&self, found: &FoundStream, now: Timestamp) -> Result<StreamFacts> {
        let object_name = found.object_name();
        let (job, cron_job, requests, templates, operator, events) = join!(
            self.object(&Resource::Jobs, object_name),
            self.object(&Resource::CronJobs, object_name),
            self.requests(found),
            self.templates(found),
            self.operator(),
            self.events(found),
        );
        let job = unless_forbidden(job)?.flatten().and_then(|raw| Job::of(&raw));
        let cron_job = unless_forbidden(cron_job)?.flatten().and_then(|raw| CronJob::of(&raw));
        let stuck_pods = match &job {
            Some(job) => unless_forbidden(self.stuck_pods(object_name, &job.uid).await)?,
            None => None,
        };
        let begun = found.annotation(DOWNTIME_BEGIN).map(str::to_owned);
        Ok(StreamFacts {
            now,
            stream: found.stream.clone(),
            class: found.class.clone(),
            has_class: found.has_class,
            suspended: found.suspended().then(|| found.suspend_field().field()),
            downtime: found.downtime().map(|key| (key.to_owned(), begun)),
            job,
            cron_job,
            stuck_pods: stuck_pods.unwrap_or_default(),
            requests: unless_forbidden(requests)?.unwrap_or_default(),
            templates: unless_forbidden(templates)?.unwrap_or_default(),
            operator: unless_forbidden(operator)?.unwrap_or_default(),
            events: unless_forbidden(events)?.unwrap_or_default(),
        })
    }

    /// The stream's requests, the oldest first.
    pub async fn requests(&self, found: &FoundStream) -> Result<Vec<BackfillRequest>> {
        let object_name = found.object_name();
        let path = paths::collection(&Resource::BackfillRequests);
        let path = path.path(Some(&object_name.namespace));
        let raws = self.list(&path, "").await?.unwrap_or_default();
        let all = raws.into_iter().filter_map(|raw| serde_json::from_value(raw).ok());
        let of = |request: &BackfillRequest| {
            *request.stream == *object_name.name
                && *request.class == *found.class.name
                && request.is_for(&found.class.kind, &found.stream)
        };
        let mut requests: Vec<BackfillRequest> =
            all.map(|raw| BackfillRequest::of(&raw)).filter(of).collect();
        requests.sort_by_key(|request| request.created);
        Ok(requests)
    }

    /// The templates that the stream names, and what is wrong with each; empty text if one is
    /// missing.
    async fn templates(
        &self,
        found: &FoundStream,
    ) -> Result<Vec<(NamespacedName, Option<String>)>> {
        let Ok(execution) = &found.stream.execution else { return Ok(Vec::new()) };
        let backend = execution.backend.as_ref().map(|backend| backend.template());
        let mut named: Vec<&NamespacedName> =
            backend.into_iter().chain(&execution.backfill).collect();
        named.dedup();
        let mut templates = Vec::new();
        for object_name in named {
            let version = found.class.crd_version;
            let path = paths::collection(&Resource::Templates(version)).object(object_name);
            let problem = match self.get(&path).await? {
                None => Some(String::new()),
                Some(raw) => serde_json::from_value(raw)
                    .map_err(|error| error.to_string())
                    .and_then(|raw| Template::of(&raw, version).job)
                    .err(),
            };
            templates.push((object_name.clone(), problem));
        }
        Ok(templates)
    }

    async fn operator(&self) -> Result<OperatorState> {
        let (label, value) = LEASE_LABEL;
        let selector = format!("&labelSelector={label}%3D{value}");
        let path = Collection::leases().path(None);
        let leases = self.list(&path, &selector).await?.unwrap_or_default();
        let newest = leases.into_iter().filter_map(lease).max_by_key(|(_, lease)| lease.renewed);
        Ok(newest.map_or(OperatorState::None, |(object_name, lease)| {
            OperatorState::Lease(object_name, lease)
        }))
    }

    async fn events(&self, found: &FoundStream) -> Result<Vec<Event>> {
        let path = paths::collection(&Resource::Events);
        let path = path.path(Some(&found.object_name().namespace));
        let selector = format!("&fieldSelector=involvedObject.uid%3D{}", found.stream.uid);
        let mut raws = self.list(&path, &selector).await?.unwrap_or_default();
        // Event times have a resolution of one second.
        raws.sort_by_key(|raw| {
            std::cmp::Reverse(raw["metadata"]["resourceVersion"].as_str().map(Revision::of))
        });
        let mut events: Vec<Event> = raws.iter().filter_map(event).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.at));
        events.truncate(EVENTS_MAX);
        Ok(events)
    }

    /// The pods of a Job that make no progress.
    async fn stuck_pods(&self, job: &NamespacedName, uid: &str) -> Result<Vec<(String, String)>> {
        let pods = self.pods(&job.namespace, &job.name).await?;
        let of = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == uid;
        Ok(pods.iter().filter(of).filter_map(stuck).collect())
    }

    /// The pods of a Job, the newest last.
    pub async fn pods(&self, namespace: &str, job: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let selector = format!("&labelSelector=job-name%3D{job}");
        let mut pods = self.list(&path, &selector).await?.unwrap_or_default();
        pods.sort_by_key(|pod| {
            pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned()
        });
        Ok(pods)
    }
}

/// Returns none for what the user may not read.
fn unless_forbidden<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Error::Forbidden(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn lease(raw: Value) -> Option<(NamespacedName, Lease)> {
    let raw: RawLease = serde_json::from_value(raw).ok()?;
    Some((raw.metadata.object_name(), raw.into()))
}

fn event(raw: &Value) -> Option<Event> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let times =
        ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    let at = times.iter().find_map(|path| time(raw.pointer(path)?))?;
    let by = match raw["source"]["component"].as_str() {
        Some(component) if !component.is_empty() => component.to_owned(),
        _ => text(&raw["reportingComponent"]),
    };
    Some(Event {
        at,
        warning: raw["type"] == "Warning",
        reason: text(&raw["reason"]),
        message: text(&raw["message"]),
        by,
    })
}

/// Why a pod makes no progress, if so.
fn stuck(pod: &Value) -> Option<(String, String)> {
    let status = &pod["status"];
    let name = pod["metadata"]["name"].as_str()?.to_owned();
    if status["phase"] != "Pending" && status["phase"] != "Running" {
        return None;
    }
    let containers = ["initContainerStatuses", "containerStatuses"];
    let containers = containers.iter().filter_map(|list| status[*list].as_array()).flatten();
    for container in containers {
        let waiting = &container["state"]["waiting"];
        match waiting["reason"].as_str() {
            None | Some("ContainerCreating" | "PodInitializing") => {}
            Some(reason) => {
                let message = waiting["message"].as_str().unwrap_or_default();
                let colon = if message.is_empty() { "" } else { ": " };
                return Some((name, format!("{reason}{colon}{message}")));
            }
        }
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unscheduled = conditions
        .into_iter()
        .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")?;
    let message = unscheduled["message"].as_str().unwrap_or("no node takes it");
    Some((name, format!("it is not scheduled: {message}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stuck_pod_is_distinguished_from_a_starting_one() {
        let pod = |status: Value| json!({ "metadata": { "name": "p" }, "status": status });
        let waiting = |reason: &str| {
            pod(json!({ "phase": "Pending", "containerStatuses": [
                { "state": { "waiting": { "reason": reason, "message": "no such image" } } },
            ] }))
        };
        let said = stuck(&waiting("ImagePullBackOff")).unwrap().1;
        assert_eq!(said, "ImagePullBackOff: no such image");
        assert_eq!(stuck(&waiting("ContainerCreating")), None);
        assert_eq!(stuck(&pod(json!({ "phase": "Running" }))), None);
        assert_eq!(stuck(&pod(json!({ "phase": "Succeeded" }))), None);
        let condition =
            json!({ "type": "PodScheduled", "status": "False", "message": "0/3 nodes" });
        let unscheduled = pod(json!({ "phase": "Pending", "conditions": [condition] }));
        assert_eq!(stuck(&unscheduled).unwrap().1, "it is not scheduled: 0/3 nodes");
    }

    #[test]
    fn events_of_both_apis_are_read() {
        let old = json!({
            "type": "Warning", "reason": "A", "message": "m", "lastTimestamp": "2026-11-16T07:00:00Z",
            "eventTime": null, "source": { "component": "arcane-operator" },
        });
        let new = json!({
            "type": "Normal", "reason": "B", "eventTime": "2026-11-16T07:00:00.123456Z",
            "source": {}, "reportingComponent": "arcane-operator",
        });
        for (raw, warning) in [(old, true), (new, false)] {
            let event = event(&raw).unwrap();
            assert_eq!((event.by.as_str(), event.warning), ("arcane-operator", warning));
        }
    }
}
