//! Advice that is made up, to be shown.

use std::sync::LazyLock;

use advisor::model::advice::Advice;
use advisor::model::inventory::Member;
use advisor::model::notice::{Notice, Notices};
use advisor::model::recommendation::{
    Available, BoxPlot, EngineResult, Formats, Plots, Recommendation, Resources, Sizing, Slot,
    SlotUsage, Snapshot, Term, TermResult,
};
use proptest::prelude::*;

use crate::support::recorded::Pair;

pub const MIB: f64 = 1024.0 * 1024.0;
pub const DAY_MS: i64 = 86_400_000;
/// 2026-11-18T00:00:00Z.
pub const END_MS: i64 = 1_794_960_000_000;

/// Request, limit and recommendation of a pod: cores and MiB.
#[derive(Debug, Clone, Copy, Default)]
pub struct Amounts {
    pub cpu: [Option<f64>; 3],
    pub memory: [Option<f64>; 3],
}

pub fn amounts(cpu: [f64; 3], memory: [f64; 3]) -> Amounts {
    Amounts { cpu: cpu.map(Some), memory: memory.map(Some) }
}

pub fn member(namespace: &str, workload: &str, container: &str) -> Member {
    Member {
        namespace: namespace.into(),
        workload: workload.into(),
        workload_type: "deployment".into(),
        container: container.into(),
        image: format!("registry.example.com/{container}:1"),
        pods: 2,
        shared_name: false,
    }
}

/// Advice for a container of its own workload.
pub fn advice(name: &str, pods: i32, amounts: Amounts) -> Advice {
    of(member("shop", name, name), pods, amounts)
}

/// Every term recommends the same; the performance engine one and a half times the CPU.
pub fn of(member: Member, pods: i32, amounts: Amounts) -> Advice {
    let Amounts { cpu, memory } = amounts;
    let memory = memory.map(|amount| amount.map(|mib| mib * MIB));
    let current = Sizing {
        requests: Resources { cpu: cpu[0], memory: memory[0] },
        limits: Resources { cpu: cpu[1], memory: memory[1] },
    };
    let engine = |factor: f64| {
        let cpu = cpu[2].map(|cores| cores * factor);
        let amounts = Resources { cpu, memory: memory[2] };
        let idle = cpu.is_none().then_some(Notice::CpuIdle);
        EngineResult {
            pods_count: pods,
            confidence_level: 0.0,
            config: Sizing { requests: amounts, limits: amounts },
            accelerator: None,
            variation: Sizing::default(),
            notices: idle.into_iter().collect(),
        }
    };
    let terms = Term::ALL.map(|term| TermResult {
        term,
        duration_hours: f64::from(term.days()) * 24.0,
        notices: Notices::from_iter([Notice::CostAvailable, Notice::PerformanceAvailable]),
        available: Some(Available {
            monitoring_start_ms: END_MS - i64::from(term.days()) * DAY_MS,
            cost: engine(1.0),
            performance: engine(1.5),
            plots: Some(plots(term, cpu[2].unwrap_or(0.0), memory[2].unwrap_or(0.0))),
        }),
    });
    let notices = Notices::from_iter([Notice::LongTermAvailable]);
    let latest = Some(Snapshot { monitoring_end_ms: END_MS, notices, current, terms });
    let notices = Notices::from_iter([Notice::RecommendationsAvailable]);
    let formats = Formats::PROMETHEUS;
    let experiment = format!("p|default|{}|{}", member.namespace, member.container);
    let outcome = Ok(Recommendation { notices, formats, latest, runtimes: vec![] });
    Advice { member, experiment, outcome }
}

fn plots(term: Term, cpu: f64, memory: f64) -> Plots {
    let boxed = |top: f64, i: u32| {
        let top = top * (1.0 - f64::from(i % 4) * 0.1);
        BoxPlot { min: top * 0.2, q1: top * 0.5, median: top * 0.6, q3: top * 0.7, max: top }
    };
    let slots = (0..term.days()).map(|i| Slot {
        end_ms: END_MS - i64::from(term.days() - 1 - i) * DAY_MS,
        usage: (i != 3).then(|| SlotUsage { cpu: boxed(cpu, i), memory: boxed(memory, i + 1) }),
    });
    Plots { slots: slots.collect() }
}

/// Takes the terms from a container that is newer than they are.
pub fn without_terms(mut advice: Advice, terms: &[Term]) -> Advice {
    let latest = advice.outcome.as_mut().unwrap().latest.as_mut().unwrap();
    for term in terms {
        latest.terms[*term as usize].available = None;
    }
    advice
}

pub fn failed(name: &str, reason: &str) -> Advice {
    let mut advice = advice(name, 1, Amounts::default());
    advice.outcome = Err(reason.into());
    advice
}

/// The recorded pairs, which take long to read.
pub fn pairs() -> &'static [Pair] {
    static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| Pair::NAMES.map(Pair::read).into());
    &PAIRS
}

/// What the advisor makes of the recorded pairs.
pub fn recorded() -> Vec<Advice> {
    pairs().iter().map(|pair| pair.advice(|_, _| true)).collect()
}

/// Names that break what shows them without care.
pub const HOSTILE: [&str; 10] = [
    "<script>alert(1)</script>",
    "\"quoted\", with 'both' & a comma",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "+1;-2",
    "  =1+1",
    "a\nb\r\nc\td",
    "]]></style></title><img src=x onerror=alert(1)>",
    "\u{1b}[31mred\u{202e}gnp",
    "x\" onmouseover=\"alert(1)",
];

/// Containers with hostile names everywhere.
pub fn hostile() -> Vec<Advice> {
    let names = HOSTILE.iter().enumerate();
    let made = names.map(|(i, name)| {
        let mut member = member(name, name, name);
        (member.workload_type, member.image) = ((*name).into(), (*name).into());
        let mut made =
            of(member, 1, amounts([1.0, 1.0, 1.2 - i as f64 / 10.0], [64.0, 64.0, 32.0]));
        made.experiment = (*name).into();
        made
    });
    let mut made: Vec<Advice> = made.collect();
    made.extend(HOSTILE.iter().map(|name| failed(name, name)));
    made
}

/// Any containers.
pub fn any() -> impl Strategy<Value = Vec<Advice>> {
    let amount = || prop::option::of(0.0_f64..64.0);
    let three = || [amount(), amount(), amount()];
    let made = ("\\PC{0,20}|[a-z]{1,63}", 0..9_i32, three(), three(), 0..8_usize);
    let advice = made.prop_map(|(name, pods, cpu, memory, kind)| match kind {
        0 => failed(&name, "no answer"),
        1 => without_terms(advice(&name, pods, Amounts { cpu, memory }), &[Term::Long]),
        2 => without_terms(advice(&name, pods, Amounts { cpu, memory }), &Term::ALL),
        _ => advice(&name, pods, Amounts { cpu, memory }),
    });
    prop::collection::vec(advice, 0..20)
}
