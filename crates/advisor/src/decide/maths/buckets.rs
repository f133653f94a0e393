//! One row per interval: every bucket that any column has a measurement for, and what it says
//! about CPU, memory and pods. The buffers are kept, so that a second workload allocates nothing.

use super::columns::{Columns, Series, ceil};
use super::cpu::{self, Sample, Value};
use super::{memory, namespace};
use crate::model::measure::{Aggregate, Metric};

/// What the columns are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Container,
    Namespace,
}

/// The columns that a recommendation reads; further ones only make buckets.
const READ: [(Metric, Aggregate); 15] = [
    (Metric::CpuUsage, Aggregate::Sum),
    (Metric::CpuUsage, Aggregate::Avg),
    (Metric::CpuUsage, Aggregate::Min),
    (Metric::CpuUsage, Aggregate::Max),
    (Metric::CpuThrottle, Aggregate::Sum),
    (Metric::CpuThrottle, Aggregate::Avg),
    (Metric::CpuThrottle, Aggregate::Min),
    (Metric::CpuThrottle, Aggregate::Max),
    (Metric::MemoryUsage, Aggregate::Sum),
    (Metric::MemoryUsage, Aggregate::Avg),
    (Metric::MemoryUsage, Aggregate::Min),
    (Metric::MemoryUsage, Aggregate::Max),
    (Metric::MemoryRss, Aggregate::Min),
    (Metric::MemoryRss, Aggregate::Max),
    (Metric::Pods, Aggregate::Avg),
];

/// The rows, as columns of equal length. Times ascend.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    pub end_ms: Vec<i64>,
    pub cpu: Vec<f64>,
    pub cpu_min: Vec<f64>,
    pub memory: Vec<f64>,
    pub memory_min: Vec<f64>,
    pub spike: Vec<f64>,
    /// Pods, rounded up for each bucket of a container.
    pub pods: Vec<f64>,
    /// What was read, one value for each bucket.
    read: [Vec<f64>; READ.len()],
    merged: Vec<i64>,
}

/// What one bucket measured.
struct Row {
    cpu: Sample,
    throttle: Sample,
    memory: Sample,
    rss: Sample,
    pods: f64,
}

/// What one bucket means.
struct Meaning {
    cpu: Value,
    memory: Value,
    spike: f64,
    pods: f64,
}

fn container(row: &Row) -> Meaning {
    let by_cpu = row.cpu.pods();
    let pods = if by_cpu == 0.0 { row.memory.pods() } else { by_cpu };
    Meaning {
        cpu: cpu::value(row.cpu, row.throttle, pods),
        memory: memory::value(row.memory, pods),
        spike: memory::spike(row.memory, row.rss),
        pods: ceil(by_cpu),
    }
}

fn namespace(row: &Row) -> Meaning {
    Meaning {
        cpu: namespace::cpu(row.cpu, row.throttle),
        memory: namespace::memory(row.memory),
        spike: memory::spike(row.memory, row.rss),
        pods: row.pods,
    }
}

impl Buckets {
    /// Replaces the rows by those of a workload.
    pub(super) fn load(&mut self, scope: Scope, columns: &Columns<'_>) {
        self.unite(columns);
        for ((metric, aggregate), out) in READ.iter().zip(&mut self.read) {
            columns.get(*metric, *aggregate).fill(&self.end_ms, out);
        }
        match scope {
            Scope::Container => self.convert(container),
            Scope::Namespace => self.convert(namespace),
        }
    }

    /// Writes what each bucket means. All slices get the same length first, so that the loop
    /// checks no bounds.
    fn convert(&mut self, meaning: impl Fn(&Row) -> Meaning) {
        let len = self.end_ms.len();
        let read = self.read.each_ref().map(|column| &column[..len]);
        let [u_sum, u_avg, u_min, u_max, t_sum, t_avg, t_min, t_max, ..] = read;
        let [.., m_sum, m_avg, m_min, m_max, r_min, r_max, pods] = read;
        let written = [
            &mut self.cpu,
            &mut self.cpu_min,
            &mut self.memory,
            &mut self.memory_min,
            &mut self.spike,
            &mut self.pods,
        ];
        let [cpu, cpu_min, memory, memory_min, spike, pods_out] = written.map(|column| {
            column.resize(len, 0.0);
            &mut column[..len]
        });
        for i in 0..len {
            let meaning = meaning(&Row {
                cpu: Sample { sum: u_sum[i], avg: u_avg[i], min: u_min[i], max: u_max[i] },
                throttle: Sample { sum: t_sum[i], avg: t_avg[i], min: t_min[i], max: t_max[i] },
                memory: Sample { sum: m_sum[i], avg: m_avg[i], min: m_min[i], max: m_max[i] },
                rss: Sample { sum: 0.0, avg: 0.0, min: r_min[i], max: r_max[i] },
                pods: pods[i],
            });
            (cpu[i], cpu_min[i]) = (meaning.cpu.value, meaning.cpu.min);
            (memory[i], memory_min[i]) = (meaning.memory.value, meaning.memory.min);
            (spike[i], pods_out[i]) = (meaning.spike, meaning.pods);
        }
    }

    /// Makes `end_ms` the union of the times at which anything was measured.
    fn unite(&mut self, columns: &Columns<'_>) {
        self.end_ms.clear();
        if let Some(longest) = columns.iter().max_by_key(|series| series.len()) {
            self.end_ms.extend(longest.samples().map(|(at, _)| at));
        }
        for series in columns.iter() {
            self.add(series);
        }
    }

    /// Adds the times of a series. Most series have no new ones, which one comparison finds out.
    fn add(&mut self, series: &Series<'_>) {
        if series.end_ms() == self.end_ms || !self.has_new(series) {
            return;
        }
        self.merged.clear();
        let mut old = self.end_ms.iter().copied().peekable();
        for (at, _) in series.samples() {
            while let Some(earlier) = old.next_if(|other| *other < at) {
                self.merged.push(earlier);
            }
            old.next_if_eq(&at);
            self.merged.push(at);
        }
        self.merged.extend(old);
        std::mem::swap(&mut self.end_ms, &mut self.merged);
    }

    fn has_new(&self, series: &Series<'_>) -> bool {
        let mut known = self.end_ms.iter();
        series.samples().any(|(at, _)| known.find(|other| **other >= at) != Some(&at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns<'a>(series: &[(Metric, Aggregate, &'a [i64], &'a [f64])]) -> Columns<'a> {
        let mut columns = Columns::default();
        for (metric, aggregate, times, values) in series {
            columns.set(*metric, *aggregate, Series::new(times, values).unwrap());
        }
        columns
    }

    #[test]
    fn a_bucket_exists_where_anything_was_measured() {
        let columns = columns(&[
            (Metric::CpuUsage, Aggregate::Max, &[20, 30], &[0.2, 0.3]),
            (Metric::CpuUsage, Aggregate::Avg, &[10, 30, 50], &[0.1, f64::NAN, 0.5]),
            (Metric::MemoryRequest, Aggregate::Avg, &[40, 60], &[7.0, f64::INFINITY]),
        ]);
        let mut buckets = Buckets::default();
        buckets.load(Scope::Container, &columns);
        assert_eq!(buckets.end_ms, [10, 20, 30, 40, 50]);
        assert_eq!(buckets.cpu, [0.1, 0.2, 0.3, 0.0, 0.5]);
        // A second workload replaces the first.
        buckets.load(Scope::Container, &Columns::default());
        assert!(buckets.end_ms.is_empty() && buckets.cpu.is_empty());
    }

    #[test]
    fn a_time_without_any_measurement_is_not_a_bucket() {
        let nan = [f64::NAN, 1.0];
        let columns = columns(&[(Metric::CpuUsage, Aggregate::Max, &[10, 20], &nan)]);
        let mut buckets = Buckets::default();
        buckets.load(Scope::Container, &columns);
        assert_eq!(buckets.end_ms, [20]);
    }

    #[test]
    fn pods_come_from_cpu_and_only_shares_fall_back_to_memory() {
        let (t, one) = ([10], |value: f64| vec![value]);
        let (sum, avg, max) = (one(6.0), one(2.0), one(1.0));
        let columns = columns(&[
            (Metric::MemoryUsage, Aggregate::Sum, &t, &sum),
            (Metric::MemoryUsage, Aggregate::Avg, &t, &avg),
            (Metric::MemoryUsage, Aggregate::Max, &t, &max),
            (Metric::CpuUsage, Aggregate::Sum, &t, &sum),
            (Metric::CpuUsage, Aggregate::Max, &t, &max),
        ]);
        let mut buckets = Buckets::default();
        buckets.load(Scope::Container, &columns);
        assert_eq!((buckets.cpu[0], buckets.memory[0], buckets.pods[0]), (2.0, 2.0, 0.0));
        buckets.load(Scope::Namespace, &columns);
        assert_eq!((buckets.cpu[0], buckets.memory[0], buckets.pods[0]), (1.0, 1.0, 0.0));
    }
}
