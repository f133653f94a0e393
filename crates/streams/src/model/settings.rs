//! What an installation may decide about its streams.

/// What decisions may be told to do differently.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How many backfills may run at once; none: as many as are asked for.
    pub backfills_max: Option<usize>,
    /// How many completed requests of a stream are kept.
    pub requests_kept: usize,
    /// How many Jobs may be started anew in a minute because something changed; none: all.
    pub restarts_per_minute: Option<usize>,
    pub recovery: Recovery,
    /// How long another operator must have written nothing until its streams are ours.
    pub other_quiet_s: u64,
}

/// When a stream that failed is started again, if it asks for that.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    pub first_s: u64,
    pub longest_s: u64,
    pub attempts: u32,
    /// After having run for so long, a failure counts as the first one.
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
