//! What the advisor recommends for one container or namespace, without its form on the wire.
//!
//! Times are milliseconds since 1970. Amounts are in the unit of the metric that they come from;
//! `Formats` names it once for all of them.

use std::borrow::Cow;

use super::notice::{Notice, Notices};

/// The windows that are judged separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    Short,
    Medium,
    Long,
}

impl Term {
    pub const ALL: [Term; 3] = [Term::Short, Term::Medium, Term::Long];

    pub fn days(self) -> u32 {
        match self {
            Term::Short => 1,
            Term::Medium => 7,
            Term::Long => 15,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Term::Short => "short_term",
            Term::Medium => "medium_term",
            Term::Long => "long_term",
        }
    }

    /// The notice that this term has recommendations.
    pub fn available(self) -> Notice {
        match self {
            Term::Short => Notice::ShortTermAvailable,
            Term::Medium => Notice::MediumTermAvailable,
            Term::Long => Notice::LongTermAvailable,
        }
    }
}

/// Everything that is recommended for one container or namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    pub notices: Notices,
    pub formats: Formats,
    /// Absent if no term has enough data.
    pub latest: Option<Snapshot>,
    /// The language runtimes that layers found. No formula is known for them: facts only.
    pub runtimes: Vec<Runtime>,
}

/// The units of amounts, as the metrics name them. Uploaded results may leave them out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formats {
    pub cpu: Option<Cow<'static, str>>,
    pub memory: Option<Cow<'static, str>>,
}

impl Formats {
    /// What a data source reports.
    pub const PROMETHEUS: Formats =
        Formats { cpu: Some(Cow::Borrowed("cores")), memory: Some(Cow::Borrowed("bytes")) };
}

/// The recommendations as of one point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub monitoring_end_ms: i64,
    pub notices: Notices,
    pub current: Sizing,
    /// In the order of `Term::ALL`.
    pub terms: [TermResult; 3],
}

impl Snapshot {
    pub fn term(&self, term: Term) -> &TermResult {
        &self.terms[term as usize]
    }
}

/// CPU and memory of one section. Unset means: not configured, or no recommendation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Resources {
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
}

/// Requests and limits, or how much they change.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sizing {
    pub requests: Resources,
    pub limits: Resources,
}

/// One term. Without enough data it has only hours and a notice.
#[derive(Debug, Clone, PartialEq)]
pub struct TermResult {
    pub term: Term,
    pub duration_hours: f64,
    pub notices: Notices,
    pub available: Option<Available>,
}

/// What a term with enough data has.
#[derive(Debug, Clone, PartialEq)]
pub struct Available {
    pub monitoring_start_ms: i64,
    pub cost: EngineResult,
    pub performance: EngineResult,
    /// Absent if plots are switched off.
    pub plots: Option<Plots>,
}

/// What one engine (cost or performance) recommends. Environment variables of a runtime would be
/// here too, if a formula for them were known.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineResult {
    pub pods_count: i32,
    pub confidence_level: f64,
    pub config: Sizing,
    /// A MIG profile among the limits.
    pub accelerator: Option<MigProfile>,
    pub variation: Sizing,
    pub notices: Notices,
}

const RESOURCE_PREFIX: &str = "nvidia.com/mig-";

/// A slice of a GPU that the limits name, one of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigProfile {
    /// `7g.40gb`; see `resource` for its name in Kubernetes.
    pub name: Cow<'static, str>,
}

impl MigProfile {
    pub const AMOUNT: f64 = 1.0;
    pub const FORMAT: &'static str = "cores";

    /// The name of the resource among the limits.
    pub fn resource(&self) -> String {
        format!("{RESOURCE_PREFIX}{}", self.name)
    }

    /// The profile of which this is the resource.
    pub fn of_resource(resource: &str) -> Option<MigProfile> {
        let name = resource.strip_prefix(RESOURCE_PREFIX)?;
        Some(MigProfile { name: name.to_owned().into() })
    }
}

/// A language runtime that a layer found in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    pub runtime: String,
    pub vendor: String,
    pub version: String,
}

/// Box plots of a term, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Plots {
    pub slots: Vec<Slot>,
}

/// The part of a term that ends at `end_ms`. Without buckets it has no boxes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slot {
    pub end_ms: i64,
    pub usage: Option<SlotUsage>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotUsage {
    pub cpu: BoxPlot,
    pub memory: BoxPlot,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoxPlot {
    pub min: f64,
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
    pub max: f64,
}
