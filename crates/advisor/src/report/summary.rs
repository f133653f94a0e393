//! What is requested against what is recommended, per container and in total, and where that
//! matters most.

use super::risk::{self, Risk};
use super::units;
use crate::model::advice::Advice;
use crate::model::inventory::Member;
use crate::model::recommendation::{
    Available, EngineResult, Recommendation, Snapshot, Term, TermResult,
};

/// Which of the recommendations is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choice {
    /// None is the longest term that has data, for each container.
    pub term: Option<Term>,
    pub engine: Engine,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    #[default]
    Cost,
    Performance,
}

impl Engine {
    pub fn as_str(self) -> &'static str {
        match self {
            Engine::Cost => "cost",
            Engine::Performance => "performance",
        }
    }

    pub fn of(self, available: &Available) -> &EngineResult {
        match self {
            Engine::Cost => &available.cost,
            Engine::Performance => &available.performance,
        }
    }
}

impl Choice {
    /// `cost engine, the longest term with data`.
    pub fn describe(self) -> String {
        let term = match self.term {
            None => "the longest term with data".to_owned(),
            Some(term) => format!("the term of {}", units::count(term.days() as usize, "day")),
        };
        format!("{} engine, {term}", self.engine.as_str())
    }
}

/// The advice for many containers, compared and ranked.
#[derive(Debug, Clone)]
pub struct Summary<'a> {
    pub choice: Choice,
    /// The containers with a recommendation, in the order that they came in.
    pub rows: Vec<Row<'a>>,
    /// The others.
    pub skipped: Vec<Skipped<'a>>,
    pub totals: Totals,
    /// Where requests shrink: indexes of rows, the largest saving first.
    pub savings: Vec<usize>,
    /// What is wrong with containers, the worst first.
    pub risks: Vec<Risk>,
}

/// A container with a recommendation.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub advice: &'a Advice,
    pub snapshot: &'a Snapshot,
    pub term: &'a TermResult,
    pub available: &'a Available,
    pub engine: &'a EngineResult,
    /// The most pods that ran at once in the term.
    pub pods: u32,
    /// In cores.
    pub cpu: Resource,
    /// In bytes.
    pub memory: Resource,
    /// How many bytes the metric's unit has.
    pub memory_unit: f64,
}

/// A container without one.
#[derive(Debug, Clone, Copy)]
pub struct Skipped<'a> {
    pub advice: &'a Advice,
    pub reason: &'a str,
}

/// CPU or memory of one container: per pod, and how many pods there are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resource {
    pub request: Option<f64>,
    pub limit: Option<f64>,
    /// None if it is idle, or was not measured.
    pub recommended: Option<f64>,
    pub pods: u32,
}

impl Resource {
    /// What all pods request now.
    pub fn requested(&self) -> f64 {
        self.request.unwrap_or(0.0) * f64::from(self.pods)
    }

    /// What all pods should request. Without a recommendation, what they request now.
    pub fn needed(&self) -> f64 {
        self.recommended.or(self.request).unwrap_or(0.0) * f64::from(self.pods)
    }

    /// By how much the requests of all pods change: less than 0 is a saving.
    pub fn change(&self) -> f64 {
        self.needed() - self.requested()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    pub pods: u64,
    /// In cores.
    pub cpu: Total,
    /// In bytes.
    pub memory: Total,
}

/// The sums of one resource over all pods of all containers with a recommendation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Total {
    pub requested: f64,
    pub needed: f64,
    /// What containers request too much.
    pub saved: f64,
    pub saving_containers: usize,
    /// What containers request too little.
    pub missing: f64,
    pub missing_containers: usize,
}

impl Total {
    fn add(&mut self, resource: &Resource) {
        self.requested += resource.requested();
        self.needed += resource.needed();
        let change = resource.change();
        if change < 0.0 {
            self.saved -= change;
            self.saving_containers += 1;
        } else if change > 0.0 {
            self.missing += change;
            self.missing_containers += 1;
        }
    }

    /// Less than 0 is a saving.
    pub fn change(&self) -> f64 {
        self.missing - self.saved
    }

    /// A part of all that is requested.
    pub fn share(&self, amount: f64) -> f64 {
        if self.requested > 0.0 { amount / self.requested } else { 0.0 }
    }
}

impl Totals {
    /// How much of the cluster a container saves. Cores and bytes cannot be added, but shares can:
    /// each resource counts as much as it is scarce, which is how schedulers compare tenants
    /// (dominant resource fairness). What one resource saves and the other needs more offset.
    pub fn score(&self, row: &Row<'_>) -> f64 {
        -self.cpu.share(row.cpu.change()) - self.memory.share(row.memory.change())
    }
}

impl<'a> Summary<'a> {
    pub fn new(advice: &'a [Advice], choice: Choice) -> Self {
        let mut rows = Vec::with_capacity(advice.len());
        let mut skipped = Vec::new();
        for advice in advice {
            match Row::new(advice, choice) {
                Ok(row) => rows.push(row),
                Err(reason) => skipped.push(Skipped { advice, reason }),
            }
        }
        let mut totals = Totals::default();
        for row in &rows {
            totals.pods += u64::from(row.pods);
            totals.cpu.add(&row.cpu);
            totals.memory.add(&row.memory);
        }
        let scores: Vec<f64> = rows.iter().map(|row| totals.score(row)).collect();
        let mut savings: Vec<usize> = (0..rows.len()).filter(|i| scores[*i] > 0.0).collect();
        // The sort is stable, so equal savings stay in the order of their names.
        savings.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let risks = risk::ranked(&rows, &totals);
        Self { choice, rows, skipped, totals, savings, risks }
    }

    /// The rows by how much there is to say about them: those that may fail, then by what they save,
    /// then the others.
    pub(super) fn by_importance(&self) -> Vec<usize> {
        let risky = self.risks.iter().filter(|risk| risk.kind.is_severe()).map(|risk| risk.row);
        let savings = self.savings.iter().copied();
        let order = risky.chain(savings).chain(self.risks.iter().map(|risk| risk.row));
        let order = order.chain(0..self.rows.len());
        let mut seen = vec![false; self.rows.len()];
        order.filter(|row| !std::mem::replace(&mut seen[*row], true)).collect()
    }

    /// How many containers there are, with or without a recommendation.
    pub fn containers(&self) -> usize {
        self.rows.len() + self.skipped.len()
    }

    /// The containers that may fail.
    pub fn containers_at_risk(&self) -> usize {
        let mut rows: Vec<usize> =
            self.risks.iter().filter(|it| it.kind.is_severe()).map(|it| it.row).collect();
        rows.sort_unstable();
        rows.dedup();
        rows.len()
    }
}

impl<'a> Row<'a> {
    /// The reason if there is no recommendation.
    fn new(advice: &'a Advice, choice: Choice) -> Result<Self, &'a str> {
        const NO_DATA: &str = "not enough data";
        let found: &Recommendation = advice.outcome.as_ref().map_err(String::as_str)?;
        let snapshot = found.latest.as_ref().ok_or(NO_DATA)?;
        let wanted = |it: &&TermResult| choice.term.is_none_or(|term| term == it.term);
        let terms = snapshot.terms.iter().rev().filter(wanted);
        let with_data = |it: &'a TermResult| Some((it, it.available.as_ref()?));
        let (term, available) = terms.filter_map(with_data).next().ok_or(NO_DATA)?;
        let engine = choice.engine.of(available);
        let pods = pods(engine, &advice.member);
        let (requests, limits) = (&snapshot.current.requests, &snapshot.current.limits);
        let amounts = &engine.config.requests;
        let memory_unit = units::bytes_per(found.formats.memory.as_deref());
        let bytes = |amount: Option<f64>| amount.map(|amount| amount * memory_unit);
        Ok(Self {
            advice,
            snapshot,
            term,
            available,
            engine,
            pods,
            cpu: Resource {
                request: requests.cpu,
                limit: limits.cpu,
                recommended: amounts.cpu,
                pods,
            },
            memory: Resource {
                request: bytes(requests.memory),
                limit: bytes(limits.memory),
                recommended: bytes(amounts.memory),
                pods,
            },
            memory_unit,
        })
    }
}

/// The pods that the engine counted. It counts none where no CPU was used: then what discovery saw.
fn pods(engine: &EngineResult, member: &Member) -> u32 {
    let counted = u32::try_from(engine.pods_count).unwrap_or(0);
    if counted > 0 { counted } else { member.pods.max(1) }
}
