//! The phases of a stream, as each line of CRDs spells them.

use super::Line;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing has been written yet.
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

    pub fn label(self, line: Line) -> &'static str {
        match (line, self) {
            (_, Phase::New) => "",
            (Line::V1, Phase::Pending) => "Pending",
            (Line::V1, Phase::Backfilling) => "Backfilling",
            (Line::V1, Phase::Running) => "Running",
            (Line::V1, Phase::Scheduled) => "Scheduled",
            (Line::V1, Phase::Suspended) => "Suspended",
            (Line::V1, Phase::Failed) => "Failed",
            (Line::Beta, Phase::Pending) => "RESTARTING",
            (Line::Beta, Phase::Backfilling) => "RELOADING",
            (Line::Beta, Phase::Running | Phase::Scheduled) => "RUNNING",
            (Line::Beta, Phase::Suspended) => "SUSPENDED",
            (Line::Beta, Phase::Failed) => "FAILED",
        }
    }

    /// By either spelling; what nobody writes counts as nothing written.
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
