//! Recommendations from uploaded results.

use super::maths::buckets::Scope;
use super::maths::columns::{Columns, Series};
use super::maths::gpu::Accelerator;
use super::maths::recommend::{Options, Recommender, Workload};
use crate::model::bucket::{
    Bucket, CONTAINER, CORE_USAGE, FRAME_BUFFER_USAGE, MEMORY_USAGE, Measured, NAMESPACE, Uploaded,
};
use crate::model::experiment::{Experiment, Type};
use crate::model::measure::{Aggregate, Metric};
use crate::model::recommendation::{Formats, Recommendation};

/// Recommendations read as much, with both ends.
pub const WINDOW_MS: i64 = 15 * 24 * 60 * 60 * 1000;

const AGGREGATES: [Aggregate; 4] = [Aggregate::Sum, Aggregate::Avg, Aggregate::Min, Aggregate::Max];
const GPU: [&str; 3] = [CORE_USAGE, MEMORY_USAGE, FRAME_BUFFER_USAGE];

/// The results of an experiment by columns, which take a tenth of what the buckets do.
pub struct Results {
    scope: Scope,
    options: Options,
    /// Of each container in its order, or of the namespace.
    tables: Vec<Table>,
}

impl Results {
    /// Without any.
    pub fn of(experiment: &Experiment, options: Options) -> Results {
        let options = Options {
            measurement_min: experiment.measurement_min,
            cpu_threshold_percent: experiment.threshold,
            memory_threshold_percent: experiment.threshold,
            ..options
        };
        let (scope, metrics): (_, &'static [Uploaded]) = match experiment.experiment_type {
            Type::Container => (Scope::Container, &CONTAINER),
            Type::Namespace => (Scope::Namespace, &NAMESPACE),
        };
        let table = |subject| Table::new(subject, metrics);
        let members = experiment.members().into_iter();
        let tables = match scope {
            Scope::Container => members.map(|member| table(member.container)).collect(),
            Scope::Namespace => members.map(|member| table(member.namespace)).collect(),
        };
        Results { scope, options, tables }
    }

    /// Adds a bucket, which ends later than those that are there.
    pub fn add(&mut self, bucket: &Bucket) {
        for table in &mut self.tables {
            if let Some(measured) = bucket.measured.get(&table.subject) {
                table.add(bucket, measured);
            }
        }
    }

    /// What is recommended as of the newest bucket, in the order of the containers.
    pub fn recommend(&self) -> Vec<Recommendation> {
        let mut recommender = Recommender::new(self.options);
        let recommend = |table: &Table| recommender.recommend(&table.workload(self.scope));
        self.tables.iter().map(recommend).collect()
    }
}

/// The results of one container or namespace. What is missing is NaN.
struct Table {
    subject: String,
    end_ms: Vec<i64>,
    covered_min: Vec<f64>,
    columns: Vec<Column>,
    formats: Formats,
    /// Of the GPU that was named first, with what was used of it: cores, bandwidth, memory.
    model: Option<String>,
    gpu: [Vec<f64>; 3],
}

struct Column {
    name: &'static str,
    metric: Metric,
    aggregate: Aggregate,
    values: Vec<f64>,
}

impl Table {
    fn new(subject: String, metrics: &'static [Uploaded]) -> Table {
        let column = |uploaded: &Uploaded| {
            let metric = uploaded.metric?;
            let name = uploaded.name;
            Some(AGGREGATES.map(|by| Column { name, metric, aggregate: by, values: Vec::new() }))
        };
        Table {
            subject,
            end_ms: Vec::new(),
            covered_min: Vec::new(),
            columns: metrics.iter().filter_map(column).flatten().collect(),
            formats: Formats { cpu: None, memory: None },
            model: None,
            gpu: Default::default(),
        }
    }

    fn add(&mut self, bucket: &Bucket, measured: &Measured) {
        let value = |name: &str, aggregate| {
            measured.get(name).and_then(|it| it.get(aggregate)).unwrap_or(f64::NAN)
        };
        self.end_ms.push(bucket.end_ms);
        self.covered_min.push((bucket.end_ms - bucket.start_ms) as f64 / 60_000.0);
        for Column { name, metric, aggregate, values } in &mut self.columns {
            values.push(value(name, *aggregate));
            let format = match metric {
                Metric::CpuUsage => &mut self.formats.cpu,
                Metric::MemoryUsage => &mut self.formats.memory,
                _ => continue,
            };
            if format.is_none() {
                *format = measured.get(*name).and_then(|it| Some(it.format.clone()?.into()));
            }
        }
        for (used, name) in self.gpu.iter_mut().zip(GPU) {
            used.push(value(name, Aggregate::Max));
            if self.model.is_none() {
                self.model = measured.get(name).and_then(|it| it.model.clone());
            }
        }
    }

    fn workload(&self, scope: Scope) -> Workload<'_> {
        let mut columns = Columns::default();
        for Column { metric, aggregate, values, .. } in &self.columns {
            columns.set(*metric, *aggregate, self.series(values));
        }
        Workload {
            scope,
            columns,
            formats: self.formats.clone(),
            accelerator: self.model.as_deref().map(|model| {
                let [core, memory, frame_buffer] = self.gpu.each_ref().map(|it| self.series(it));
                Accelerator { model, core, memory, frame_buffer }
            }),
            covered_min: Some(self.series(&self.covered_min)),
            runtimes: &[],
        }
    }

    fn series<'a>(&'a self, values: &'a [f64]) -> Series<'a> {
        // Buckets of one experiment have different ends, and come in their order.
        Series::new(&self.end_ms, values).unwrap_or_default()
    }
}
