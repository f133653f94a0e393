//! What is wrong with a container, apart from its size.

use super::summary::{Resource, Row, Totals};
use super::units;
use crate::model::notice::Notice;

/// One thing that is wrong with one container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Risk {
    /// The index of the row.
    pub row: usize,
    pub kind: RiskKind,
    /// How bad it is among its kind: more is worse.
    size: f64,
}

/// The worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RiskKind {
    /// More memory is recommended than the limit: the kernel kills it when it needs that.
    OutOfMemory,
    /// More CPU is recommended than the limit.
    Throttling,
    /// No request of CPU, or none of memory: the scheduler does not reserve anything.
    NoRequests,
    /// More than is requested, by over a tenth: it is evicted first, or waits for CPU, when its node
    /// is full.
    RequestsTooLittle,
    /// It requests CPU and uses next to none.
    Idle,
}

impl RiskKind {
    pub const ALL: [RiskKind; 5] = [
        RiskKind::OutOfMemory,
        RiskKind::Throttling,
        RiskKind::NoRequests,
        RiskKind::RequestsTooLittle,
        RiskKind::Idle,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            RiskKind::OutOfMemory => "out of memory",
            RiskKind::Throttling => "CPU throttling",
            RiskKind::NoRequests => "no requests",
            RiskKind::RequestsTooLittle => "requests too little",
            RiskKind::Idle => "idle",
        }
    }

    /// Whether it may fail. Most clusters have many containers that request too little or are idle,
    /// and are fine.
    pub fn is_severe(self) -> bool {
        self < RiskKind::RequestsTooLittle
    }

    /// What is configured now, and what is recommended, per pod.
    pub fn details(self, row: &Row<'_>) -> (String, String) {
        let (cpu, memory) = (row.cpu, row.memory);
        match self {
            RiskKind::OutOfMemory => (
                format!("limit {}", shown(memory.limit, units::memory)),
                shown(memory.recommended, units::memory),
            ),
            RiskKind::Throttling => (
                format!("limit {}", shown(cpu.limit, units::cpu)),
                shown(cpu.recommended, units::cpu),
            ),
            RiskKind::NoRequests => {
                let advised_cpu = shown(cpu.recommended, units::cpu);
                let advised_memory = shown(memory.recommended, units::memory);
                match (cpu.request, memory.request) {
                    (None, None) => {
                        ("no CPU, no memory".into(), format!("{advised_cpu}, {advised_memory}"))
                    }
                    (None, Some(_)) => ("no CPU".into(), advised_cpu),
                    _ => ("no memory".into(), advised_memory),
                }
            }
            RiskKind::RequestsTooLittle => {
                let both = |cpu_amount, memory_amount| {
                    let cpu = lacks(&cpu).then(|| shown(cpu_amount, units::cpu));
                    let memory = lacks(&memory).then(|| shown(memory_amount, units::memory));
                    cpu.into_iter().chain(memory).collect::<Vec<_>>().join(", ")
                };
                let now = both(cpu.request, memory.request);
                (format!("requests {now}"), both(cpu.recommended, memory.recommended))
            }
            RiskKind::Idle => {
                (format!("requests {}", shown(cpu.request, units::cpu)), "below 1m".into())
            }
        }
    }
}

fn shown(amount: Option<f64>, unit: fn(f64) -> String) -> String {
    amount.map_or_else(|| "none".to_owned(), unit)
}

/// The risks of one container, the worst first.
pub fn of<'a>(row: &'a Row<'_>) -> impl Iterator<Item = RiskKind> + 'a {
    RiskKind::ALL.into_iter().filter(|kind| applies(*kind, row))
}

/// The risks of all containers: by kind, and the worst of each first.
pub(super) fn ranked(rows: &[Row<'_>], totals: &Totals) -> Vec<Risk> {
    let mut risks = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        risks.extend(of(row).map(|kind| Risk { row: i, kind, size: size(kind, row, totals) }));
    }
    risks.sort_by(|a, b| a.kind.cmp(&b.kind).then(b.size.total_cmp(&a.size)));
    risks
}

/// Whether the first is more than the second, and both are known.
fn above(recommended: Option<f64>, current: Option<f64>) -> bool {
    recommended.zip(current).is_some_and(|(recommended, current)| recommended > current)
}

/// Whether a resource is requested, but much less of it than is recommended. Where the limit is
/// too low, too, that is the worse risk, and named instead.
fn lacks(resource: &Resource) -> bool {
    let tenth_more = resource.request.map(|request| request * 1.1);
    above(resource.recommended, tenth_more) && !above(resource.recommended, resource.limit)
}

fn applies(kind: RiskKind, row: &Row<'_>) -> bool {
    match kind {
        RiskKind::OutOfMemory => above(row.memory.recommended, row.memory.limit),
        RiskKind::Throttling => above(row.cpu.recommended, row.cpu.limit),
        RiskKind::NoRequests => row.cpu.request.is_none() || row.memory.request.is_none(),
        RiskKind::RequestsTooLittle => lacks(&row.cpu) || lacks(&row.memory),
        RiskKind::Idle => {
            let notices = row.engine.notices;
            let unused = notices.contains(Notice::CpuIdle) || notices.contains(Notice::CpuZero);
            unused && row.cpu.requested() > 0.0
        }
    }
}

/// How far above a limit; how much of the cluster is needed and not requested, or requested in vain.
fn size(kind: RiskKind, row: &Row<'_>, totals: &Totals) -> f64 {
    let ratio = |recommended: Option<f64>, limit: Option<f64>| {
        recommended.zip(limit).map_or(0.0, |(recommended, limit)| recommended / limit)
    };
    match kind {
        RiskKind::OutOfMemory => ratio(row.memory.recommended, row.memory.limit),
        RiskKind::Throttling => ratio(row.cpu.recommended, row.cpu.limit),
        RiskKind::NoRequests | RiskKind::RequestsTooLittle => -totals.score(row),
        RiskKind::Idle => row.cpu.requested(),
    }
}
