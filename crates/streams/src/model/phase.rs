//! The phases of a stream, as each CRD version spells them.

use super::CrdVersion;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// No phase has been written yet.
    New,
    Pending,
    Backfilling,
    Running,
    Scheduled,
    Suspended,
    Failed,
}

impl Phase {
    pub const ALL: [Phase; 7] = [
        Phase::New,
        Phase::Pending,
        Phase::Backfilling,
        Phase::Running,
        Phase::Scheduled,
        Phase::Suspended,
        Phase::Failed,
    ];

    /// The name in metrics, whatever the CRD version.
    pub fn name(self) -> &'static str {
        match self {
            Phase::New => "New",
            phase => phase.label(CrdVersion::V1),
        }
    }

    pub fn label(self, crd_version: CrdVersion) -> &'static str {
        match (crd_version, self) {
            (_, Phase::New) => "",
            (CrdVersion::V1, Phase::Pending) => "Pending",
            (CrdVersion::V1, Phase::Backfilling) => "Backfilling",
            (CrdVersion::V1, Phase::Running) => "Running",
            (CrdVersion::V1, Phase::Scheduled) => "Scheduled",
            (CrdVersion::V1, Phase::Suspended) => "Suspended",
            (CrdVersion::V1, Phase::Failed) => "Failed",
            (CrdVersion::V1Beta1, Phase::Pending) => "RESTARTING",
            (CrdVersion::V1Beta1, Phase::Backfilling) => "RELOADING",
            (CrdVersion::V1Beta1, Phase::Running | Phase::Scheduled) => "RUNNING",
            (CrdVersion::V1Beta1, Phase::Suspended) => "SUSPENDED",
            (CrdVersion::V1Beta1, Phase::Failed) => "FAILED",
        }
    }

    /// Parses either spelling; an unknown phase counts as new.
    pub fn of(label: &str) -> Phase {
        match label {
            "Pending" | "RESTARTING" | "TERMINATING" => Phase::Pending,
            "Backfilling" | "RELOADING" => Phase::Backfilling,
            "Running" | "RUNNING" => Phase::Running,
            "Scheduled" => Phase::Scheduled,
            "Suspended" | "SUSPENDED" | "STOPPED" => Phase::Suspended,
            "Failed" | "FAILED" => Phase::Failed,
            _ => Phase::New,
        }
    }
}
