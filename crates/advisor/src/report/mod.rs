//! What `mainstay advise` shows to people: where requests can shrink, and which containers are at
//! risk. Pure functions from advice to text.
//!
//! `summary` compares what is requested with what is recommended and ranks it. `table` is for a
//! terminal, `csv` for a spreadsheet, `html` for a browser and a printer (its plots are in
//! `boxplot`), `mail` for the body of a message. `risk` says what is wrong with a container,
//! `units` how amounts are written, and `names` how containers are. `patch` makes files of them that
//! change workloads.

mod boxplot;
pub mod csv;
pub mod html;
pub mod mail;
pub mod names;
pub mod patch;
pub mod risk;
pub mod summary;
pub mod table;
pub mod units;

use jiff::Timestamp;

pub use mail::summary_text;
pub use summary::{Choice, Engine, Summary};

/// What a report is about.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    /// Where the measurements are from, as in `https://prometheus.example.com`. Without secrets.
    pub source: &'a str,
    pub made_at: Timestamp,
}

impl Heading<'_> {
    /// `18 November 2026, 21:05 UTC`.
    fn made_at(&self) -> String {
        self.made_at.strftime("%-d %B %Y, %H:%M UTC").to_string()
    }
}
