//! The settings that decisions depend on.

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Concurrent backfills; none for no limit.
    pub backfills_max: Option<usize>,
    /// Completed requests that are kept for each stream.
    pub requests_kept: usize,
    /// Restarts per minute because of changes; none for no limit.
    pub restarts_per_minute: Option<usize>,
    pub recovery: Recovery,
    /// How long another operator must be silent before its streams are taken over.
    pub other_quiet_s: u64,
}

/// The delays of automatic restarts after failures.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    pub first_s: u64,
    pub longest_s: u64,
    pub attempts: u32,
    /// A Job that ran for longer resets the count of failures.
    pub stable_s: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            backfills_max: None,
            requests_kept: 10,
            restarts_per_minute: None,
            recovery: Recovery { first_s: 30, longest_s: 1800, attempts: 7, stable_s: 600 },
            other_quiet_s: 60,
        }
    }
}
