//! Recommendations of a workload, from its columns.

use super::buckets::{Buckets, Scope};
use super::columns::{Columns, Series};
use super::gpu::{self, Accelerator};
use super::limits::{self, CPU_OPTIMISED, MEMORY_OPTIMISED};
use super::plots::Plotter;
use super::terms::{self, Window};
use super::{cpu, memory, percentile};
use crate::model::notice::{Notice, Notices};
use crate::model::recommendation::{
    Available, EngineResult, Formats, Recommendation, Resources, Runtime, Sizing, Snapshot,
    TermResult,
};

/// The percentiles of the two engines, for CPU and GPU.
const COST: f64 = 60.0;
const PERFORMANCE: f64 = 98.0;

/// What was measured of one container or namespace.
#[derive(Debug, Clone)]
pub struct Workload<'a> {
    pub scope: Scope,
    pub columns: Columns<'a>,
    pub formats: Formats,
    /// The GPU that counts, if any: see `gpu::first_considered`.
    pub accelerator: Option<Accelerator<'a>>,
    /// Minutes that each bucket covers, if results were uploaded. From a data source a term
    /// always has its full duration.
    pub covered_min: Option<Series<'a>>,
    /// The language runtimes that layers found. They pass through: no formula is known for them.
    pub runtimes: &'a [Runtime],
}

/// What can be configured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Minutes from one bucket to the next.
    pub measurement_min: u32,
    /// In percent: 0.1 is a thousandth.
    pub cpu_threshold_percent: f64,
    pub memory_threshold_percent: f64,
    pub plots: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            measurement_min: 15,
            cpu_threshold_percent: 0.1,
            memory_threshold_percent: 0.1,
            plots: true,
        }
    }
}

/// Makes recommendations. It keeps its buffers, so use one for many workloads.
#[derive(Debug, Default)]
pub struct Recommender {
    options: Options,
    buckets: Buckets,
    scratch: Vec<i64>,
}

impl Recommender {
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Changes what holds from the next workload on.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// The recommendation as of the newest bucket.
    pub fn recommend(&mut self, workload: &Workload<'_>) -> Recommendation {
        self.load(workload).newest()
    }

    /// Prepares the recommendations of a workload at any of its times.
    pub fn load<'a>(&'a mut self, workload: &'a Workload<'a>) -> Loaded<'a> {
        self.buckets.load(workload.scope, &workload.columns);
        let gpu = workload.accelerator.as_ref();
        let gpu = gpu.map(|gpu| gpu::Usage::new(gpu, &self.buckets.end_ms));
        let (options, buckets, scratch) = (self.options, &self.buckets, &mut self.scratch);
        Loaded { options, workload, buckets, scratch, gpu }
    }
}

/// A workload whose buckets are made.
pub struct Loaded<'a> {
    options: Options,
    workload: &'a Workload<'a>,
    buckets: &'a Buckets,
    scratch: &'a mut Vec<i64>,
    gpu: Option<gpu::Usage>,
}

impl Loaded<'_> {
    /// The ends of the buckets, ascending.
    pub fn end_ms(&self) -> &[i64] {
        &self.buckets.end_ms
    }

    pub fn newest(&mut self) -> Recommendation {
        self.of_first(self.buckets.end_ms.len())
    }

    /// The recommendation as if buckets that end later did not exist.
    pub fn until(&mut self, end_ms: i64) -> Recommendation {
        self.of_first(self.buckets.end_ms.partition_point(|at| *at <= end_ms))
    }

    fn of_first(&mut self, end: usize) -> Recommendation {
        let snapshot = self.snapshot(end);
        let notice = match snapshot {
            Some(_) => Notice::RecommendationsAvailable,
            None => Notice::NotEnoughData,
        };
        Recommendation {
            notices: Notices::from_iter([notice]),
            formats: self.workload.formats.clone(),
            latest: snapshot,
            runtimes: self.workload.runtimes.to_vec(),
        }
    }

    /// Nothing if no term has enough data.
    fn snapshot(&mut self, end: usize) -> Option<Snapshot> {
        let monitoring_end_ms = *self.buckets.end_ms[..end].last()?;
        let windows = terms::windows(&self.buckets.end_ms[..end], self.options.measurement_min);
        if !windows.iter().any(|window| window.enough) {
            return None;
        }
        let Workload { scope, columns, formats, .. } = self.workload;
        let mut notices = Notices::default();
        let current = limits::current(*scope, columns, formats, monitoring_end_ms, &mut notices);
        let enough = windows.iter().filter(|window| window.enough);
        enough.for_each(|window| notices.add(window.term.available()));
        let terms = self.terms(&windows, end, &current);
        Some(Snapshot { monitoring_end_ms, notices, current, terms })
    }

    fn terms(&mut self, windows: &[Window; 3], end: usize, current: &Sizing) -> [TermResult; 3] {
        let mut extremes = Extremes::default();
        let mut later = end;
        // From the longest term down, so that the days of all terms are drawn once.
        let mut plots = [None, None, None];
        if self.options.plots {
            let mut plotter = Plotter::new(self.buckets, end, self.scratch);
            for window in windows.iter().rev().filter(|window| window.enough) {
                plots[window.term as usize] = Some(plotter.draw(window.term));
            }
        }
        windows.map(|window| {
            // A longer term is the shorter one and what is before it.
            extremes.add(self.buckets, window.first..later);
            later = window.first;
            let plots = plots[window.term as usize].take();
            let available = window.enough.then(|| {
                let [cost, performance] = self.engines(&window, end, &extremes, current);
                Available { monitoring_start_ms: window.start_ms, cost, performance, plots }
            });
            let notices = match available {
                Some(_) => {
                    Notices::from_iter([Notice::CostAvailable, Notice::PerformanceAvailable])
                }
                None => Notices::from_iter([Notice::NotEnoughData]),
            };
            let duration_hours = self.duration_hours(&window, end);
            TermResult { term: window.term, duration_hours, notices, available }
        })
    }

    fn duration_hours(&self, window: &Window, end: usize) -> f64 {
        let full = f64::from(window.term.days()) * 24.0;
        let Some(covered) = self.workload.covered_min else { return full };
        let newest = self.buckets.end_ms[end - 1];
        let inside = covered.samples().filter(|(at, _)| (window.start_ms..=newest).contains(at));
        let hours = inside.map(|(_, minutes)| minutes).sum::<f64>() / 60.0;
        (hours.min(full) * 100.0).round() / 100.0
    }

    fn engines(
        &mut self,
        window: &Window,
        end: usize,
        extremes: &Extremes,
        current: &Sizing,
    ) -> [EngineResult; 2] {
        let range = window.first..end;
        let mut cpu = [extremes.cpu; 2];
        if extremes.cpu >= cpu::ONE_CORE {
            self.scratch.clear();
            let values = self.buckets.cpu[range.clone()].iter();
            self.scratch.extend(values.copied().map(percentile::key));
            cpu = [COST, PERFORMANCE].map(|at| percentile::of(at, self.scratch));
        }
        let engine = |(percentile, cpu): (f64, f64)| {
            let mut notices = pod_notices(extremes.pods());
            let cpu = cpu::amount(cpu, &mut notices);
            let memory = memory::amount(extremes.memory, extremes.spike, &mut notices);
            let gpu = self.gpu.as_mut();
            let accelerator =
                gpu.and_then(|gpu| gpu.profile(range.clone(), percentile, &mut notices));
            let mut engine = EngineResult {
                pods_count: extremes.pods(),
                confidence_level: 0.0,
                config: Sizing::default(),
                accelerator,
                variation: Sizing::default(),
                notices,
            };
            self::compare(&mut engine, &self.options, Resources { cpu, memory }, current);
            engine
        };
        [(COST, cpu[0]), (PERFORMANCE, cpu[1])].map(engine)
    }
}

/// Compares the amounts with what is configured, and writes what is printed.
fn compare(engine: &mut EngineResult, options: &Options, amounts: Resources, current: &Sizing) {
    let (requests, limits) = (&current.requests, &current.limits);
    let cpu = limits::compare(
        amounts.cpu,
        requests.cpu,
        limits.cpu,
        options.cpu_threshold_percent,
        &CPU_OPTIMISED,
        &mut engine.notices,
    );
    let memory = limits::compare(
        amounts.memory,
        requests.memory,
        limits.memory,
        options.memory_threshold_percent,
        &MEMORY_OPTIMISED,
        &mut engine.notices,
    );
    let amounts = Resources { cpu: cpu.amount, memory: memory.amount };
    engine.config = Sizing { requests: amounts, limits: amounts };
    engine.variation = Sizing {
        requests: Resources { cpu: cpu.request_change, memory: memory.request_change },
        limits: Resources { cpu: cpu.limit_change, memory: memory.limit_change },
    };
}

fn pod_notices(pods: i32) -> Notices {
    let wrong = match pods {
        0 => Some(Notice::PodsZero),
        ..0 => Some(Notice::PodsNegative),
        _ => None,
    };
    wrong.into_iter().collect()
}

/// The largest values of a window.
#[derive(Debug, Clone, Copy)]
struct Extremes {
    cpu: f64,
    memory: f64,
    spike: f64,
    pods: f64,
}

impl Default for Extremes {
    fn default() -> Self {
        let least = f64::NEG_INFINITY;
        Self { cpu: least, memory: least, spike: least, pods: least }
    }
}

impl Extremes {
    fn add(&mut self, buckets: &Buckets, range: std::ops::Range<usize>) {
        let larger = |a: f64, b: f64| if b > a { b } else { a };
        let cpu = buckets.cpu[range.clone()].iter();
        let rest = buckets.memory[range.clone()].iter().zip(&buckets.spike[range.clone()]);
        for ((cpu, (memory, spike)), pods) in cpu.zip(rest).zip(&buckets.pods[range]) {
            self.cpu = larger(self.cpu, *cpu);
            self.memory = larger(self.memory, *memory);
            self.spike = larger(self.spike, *spike);
            self.pods = larger(self.pods, *pods);
        }
    }

    /// Pods of a container are whole already; those of a namespace are rounded up here.
    fn pods(&self) -> i32 {
        self.pods.ceil() as i32
    }
}
