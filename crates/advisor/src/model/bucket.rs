//! Uploaded results as they are kept: one bucket for each interval, by the day of its end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

use super::measure::{Aggregate, Metric};

/// The blobs of an experiment with its buckets: this, and the day. Each is a JSON list of [`Bucket`],
/// by their ends.
pub const BUCKETS: &str = "buckets/";

/// What was measured in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    pub start_ms: i64,
    pub end_ms: i64,
    /// By the names of containers, or of the namespace.
    pub measured: BTreeMap<String, Measured>,
}

/// The metrics of one container or namespace, by the names that uploads have for them.
pub type Measured = BTreeMap<String, Measurement>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Measurement {
    pub fn get(&self, aggregate: Aggregate) -> Option<f64> {
        match aggregate {
            Aggregate::Sum => self.sum,
            Aggregate::Avg => self.avg,
            Aggregate::Min => self.min,
            Aggregate::Max => self.max,
        }
    }
}

/// A metric of uploads: its name, what it measures (nothing that recommendations read, if none), and
/// whether each interval must have it.
#[derive(Debug, Clone, Copy)]
pub struct Uploaded {
    pub name: &'static str,
    pub metric: Option<Metric>,
    pub required: bool,
}

const fn uploaded(name: &'static str, metric: Metric, required: bool) -> Uploaded {
    Uploaded { name, metric: Some(metric), required }
}

pub const CORE_USAGE: &str = "acceleratorCoreUsage";
pub const MEMORY_USAGE: &str = "acceleratorMemoryUsage";
pub const FRAME_BUFFER_USAGE: &str = "acceleratorFrameBufferUsage";

/// Of a container.
pub const CONTAINER: [Uploaded; 11] = [
    uploaded("cpuUsage", Metric::CpuUsage, true),
    uploaded("cpuThrottle", Metric::CpuThrottle, false),
    uploaded("cpuRequest", Metric::CpuRequest, false),
    uploaded("cpuLimit", Metric::CpuLimit, false),
    uploaded("memoryUsage", Metric::MemoryUsage, true),
    uploaded("memoryRSS", Metric::MemoryRss, true),
    uploaded("memoryRequest", Metric::MemoryRequest, false),
    uploaded("memoryLimit", Metric::MemoryLimit, false),
    uploaded(CORE_USAGE, Metric::AcceleratorCoreUsage, false),
    uploaded(MEMORY_USAGE, Metric::AcceleratorMemoryUsage, false),
    uploaded(FRAME_BUFFER_USAGE, Metric::AcceleratorFrameBufferUsage, false),
];

/// Of a namespace.
pub const NAMESPACE: [Uploaded; 10] = [
    uploaded("namespaceCpuUsage", Metric::CpuUsage, true),
    uploaded("namespaceCpuThrottle", Metric::CpuThrottle, false),
    uploaded("namespaceCpuRequest", Metric::CpuRequest, false),
    uploaded("namespaceCpuLimit", Metric::CpuLimit, false),
    uploaded("namespaceMemoryUsage", Metric::MemoryUsage, true),
    uploaded("namespaceMemoryRSS", Metric::MemoryRss, true),
    uploaded("namespaceMemoryRequest", Metric::MemoryRequest, false),
    uploaded("namespaceMemoryLimit", Metric::MemoryLimit, false),
    uploaded("namespaceTotalPods", Metric::Pods, false),
    Uploaded { name: "namespaceRunningPods", metric: None, required: false },
];

/// The blob that has the buckets of the day of this time.
pub fn blob_name(end_ms: i64) -> String {
    let end = Timestamp::from_millisecond(end_ms).unwrap_or(Timestamp::MAX);
    format!("{BUCKETS}{}", Offset::UTC.to_datetime(end).date())
}

/// The blobs that may have buckets which end from one time to another, in order.
pub fn blob_names(from_ms: i64, to_ms: i64) -> Vec<String> {
    const DAY_MS: usize = 24 * 60 * 60 * 1000;
    let mut names: Vec<String> = (from_ms..to_ms).step_by(DAY_MS).map(blob_name).collect();
    names.push(blob_name(to_ms));
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn the_days_of_a_window_are_all_that_it_touches() {
        let names = |from, to| blob_names(ms(from), ms(to));
        let noon = "2023-05-27T12:00:00Z";
        assert_eq!(names(noon, noon), ["buckets/2023-05-27"]);
        let next = ["buckets/2023-05-27", "buckets/2023-05-28"];
        assert_eq!(names(noon, "2023-05-28T00:00:00Z"), next);
        assert_eq!(names(noon, "2023-05-28T23:59:59Z"), next);
        assert_eq!(names("2023-05-27T00:00:00Z", "2023-06-11T00:00:00Z").len(), 16);
        assert_eq!(names("2023-05-27T23:59:59Z", "2023-06-11T23:59:59Z").len(), 16);
    }
}
