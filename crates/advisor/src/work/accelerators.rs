//! The GPUs and language runtimes of the containers of a shard, from the answers that detect and
//! measure them.

use std::collections::BTreeSet;

use crate::decide::maths::columns::Series;
use crate::decide::maths::gpu::{self, Accelerator};
use crate::model::measure::Metric;
use crate::model::recommendation::Runtime;
use crate::ports::prometheus::attribution::Places;
use crate::ports::prometheus::scan::{Answer, Labels};

/// What of a shard is not a column of its containers.
#[derive(Debug, Default)]
pub struct Detected {
    runtimes: Vec<Answer>,
    memory: Option<Answer>,
    core: Option<Answer>,
    frame_buffer: Option<Answer>,
}

impl Detected {
    /// Whether a metric is not a column of the containers.
    pub fn has(metric: Metric) -> bool {
        use Metric::*;
        matches!(
            metric,
            JvmInfo
                | JvmInfoTotal
                | AcceleratorMemoryUsage
                | AcceleratorCoreUsage
                | AcceleratorFrameBufferUsage
        )
    }

    /// Keeps an answer, unless its metric is one of the containers' own.
    pub fn take(&mut self, metric: Metric, answer: Answer) -> Option<Answer> {
        match metric {
            Metric::JvmInfo | Metric::JvmInfoTotal => self.runtimes.push(answer),
            Metric::AcceleratorMemoryUsage => self.memory = Some(answer),
            Metric::AcceleratorCoreUsage => self.core = Some(answer),
            Metric::AcceleratorFrameBufferUsage => self.frame_buffer = Some(answer),
            _ => return Some(answer),
        }
        None
    }

    /// The ids of the GPUs that are considered and that containers of the shard use.
    pub fn considered(&self, places: &Places<'_>) -> BTreeSet<String> {
        let used = series(&self.memory).filter(|(labels, ..)| {
            gpu::is_considered(labels.get("modelName")) && places.find_exported(labels).is_some()
        });
        used.map(|(labels, ..)| labels.get("UUID").to_owned()).collect()
    }

    /// The GPU that counts of each container, by its place.
    pub fn gpus(&self, places: &Places<'_>, count: usize) -> Vec<Option<Accelerator<'_>>> {
        let mut all: Vec<Vec<Accelerator<'_>>> = vec![Vec::new(); count];
        for (labels, times, values) in series(&self.memory) {
            let Some(place) = places.find_exported(labels) else { continue };
            let uuid = labels.get("UUID");
            all[place].push(Accelerator {
                model: labels.get("modelName"),
                core: first(&self.core, |other| other == labels),
                memory: Series::new(times, values).unwrap_or_default(),
                frame_buffer: first(&self.frame_buffer, |other| other.get("UUID") == uuid),
            });
        }
        all.iter().map(|gpus| gpu::first_considered(gpus).copied()).collect()
    }

    /// The language runtimes of each container, by its place.
    pub fn runtimes(&self, places: &Places<'_>, count: usize) -> Vec<Vec<Runtime>> {
        let mut all = vec![Vec::new(); count];
        for (labels, ..) in self.runtimes.iter().flat_map(Answer::series) {
            let Some(place) = places.find(labels) else { continue };
            let label = |name: &str| labels.get(name).to_owned();
            let runtime = Runtime {
                runtime: label("runtime"),
                vendor: label("vendor"),
                version: label("version"),
            };
            if !runtime.runtime.is_empty() && !all[place].contains(&runtime) {
                all[place].push(runtime);
            }
        }
        all
    }
}

fn series(answer: &Option<Answer>) -> impl Iterator<Item = (&Labels, &[i64], &[f64])> {
    answer.iter().flat_map(Answer::series)
}

/// The first series whose labels are right; the existing service reads no other.
fn first(answer: &Option<Answer>, is_right: impl Fn(&Labels) -> bool) -> Series<'_> {
    let found = series(answer).find(|(labels, ..)| is_right(labels));
    found.and_then(|(_, times, values)| Series::new(times, values).ok()).unwrap_or_default()
}
