//! Metrics under the names of the existing service, so that its dashboards work.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Error as Unwritable;
use std::sync::Arc;
use std::time::Duration;

use kernel::event_tail::EventTail;
use kernel::informer::{CacheUpdate, Informer};
use kernel::{Key, Object, Result};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue};
use prometheus_client::metrics::MetricType;

use crate::model::job::{JOB, JobPhase};

/// What every metric of the existing service says of itself.
const APPLICATION: (&str, &str) = ("application", "Kruize");

/// Requests to the API of this process.
#[derive(Debug, Default)]
pub struct Calls(Mutex<BTreeMap<Labels, Stats>>);

/// The existing service names the function that answers, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    api: String,
    method: String,
    status: &'static str,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stats {
    count: u64,
    sum_s: f64,
    max_s: f64,
}

impl Calls {
    /// Counts a job that has ended.
    pub fn job(&self, completed: bool, took: Duration) {
        self.add("bulk", "runBulkJob", completed, took);
    }

    /// Counts a request. `route` is the template of its path.
    pub fn request(&self, http_method: &str, route: &str, status: u16, took: Duration) {
        let api = route.trim_start_matches('/');
        let method = match (api, http_method) {
            ("bulk", "POST") => "createBulkJob",
            ("bulk", _) => "jobStatus",
            _ => api,
        };
        // It is timed under this name there.
        let api = if api == "generateRecommendations" { "updateRecommendations" } else { api };
        self.add(api, method, status < 400, took);
    }

    fn add(&self, api: &str, method: &str, succeeded: bool, took: Duration) {
        let labels = Labels {
            api: api.to_owned(),
            method: method.to_owned(),
            status: if succeeded { "success" } else { "failure" },
        };
        let took_s = took.as_secs_f64();
        let mut all = self.0.lock();
        let stats = all.entry(labels).or_default();
        stats.count += 1;
        stats.sum_s += took_s;
        stats.max_s = stats.max_s.max(took_s);
    }
}

/// The jobs that are discovering or running, of all organisations. Every replica tells the same.
#[derive(Debug, Default)]
pub struct ActiveJobs(Mutex<HashSet<Key>>);

impl ActiveJobs {
    /// Lists the jobs. The informer keeps up with what becomes of them while it runs.
    pub async fn load(self: &Arc<Self>, tail: &EventTail) -> Result<Arc<Informer>> {
        let jobs = self.clone();
        let apply = move |update, _| jobs.apply(update);
        let is_job = Arc::new(|kind: &str| kind == JOB);
        Informer::load(tail, &[JOB.to_owned()], is_job, Arc::new(apply)).await
    }

    fn apply(&self, update: CacheUpdate) {
        let mut active = self.0.lock();
        match update {
            CacheUpdate::Upsert(job) if is_active(&job) => {
                active.insert(job.key);
            }
            CacheUpdate::Upsert(job) => {
                active.remove(&job.key);
            }
            CacheUpdate::Resync(there) => active.retain(|key| there.contains(key)),
        }
    }
}

fn is_active(job: &Object) -> bool {
    let active = [JobPhase::Discovering, JobPhase::Running];
    job.deleted_at.is_none() && active.iter().any(|phase| phase.label() == job.phase)
}

/// Reads the counts when it is scraped.
#[derive(Debug)]
pub struct Scrape {
    pub calls: Arc<Calls>,
    pub active: Arc<ActiveJobs>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::result::Result<(), Unwritable> {
        let all = self.calls.0.lock().clone();
        let (count, sum, max) = ("kruizeAPI_count", "kruizeAPI_sum", "kruizeAPI_max");
        write(&mut encoder, count, "Requests", &all, |stats| stats.count as f64)?;
        write(&mut encoder, sum, "Time of all requests in seconds", &all, |stats| stats.sum_s)?;
        write(&mut encoder, max, "Time of the longest request in seconds", &all, |s| s.max_s)?;
        let (name, help) = ("kruizeAPI_active_jobs_count", "Jobs that are discovering or running");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let labels =
            [("api", "bulk"), ("method", "runBulkJob"), ("status", "running"), APPLICATION];
        let active = self.active.0.lock().len() as f64;
        family.encode_family(&labels)?.encode_gauge(&active)
    }
}

/// Writes one metric, whose name is exactly this.
fn write<V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    all: &BTreeMap<Labels, Stats>,
    value: impl Fn(&Stats) -> V,
) -> std::result::Result<(), Unwritable> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Unknown)?;
    for (Labels { api, method, status }, stats) in all {
        let labels = [("api", api.as_str()), ("method", method), ("status", status), APPLICATION];
        family.encode_family(&labels)?.encode_gauge(&value(stats))?;
    }
    Ok(())
}
