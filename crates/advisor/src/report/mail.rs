//! The report in a few plain lines, for the body of a mail that has the whole one attached.

use std::fmt::{self, Write};

use super::summary::{Summary, Total};
use super::table::{counted_risks, reasons};
use super::{Heading, names, units};

/// Containers that are named.
const NAMED_MAX: usize = 5;

/// The totals, the largest savings, and how many containers are at risk.
pub fn summary_text(summary: &Summary<'_>, heading: &Heading<'_>) -> String {
    let mut text = String::new();
    write(summary, heading, &mut text).expect("a string takes everything");
    text
}

fn write(summary: &Summary<'_>, heading: &Heading<'_>, out: &mut String) -> fmt::Result {
    let containers = units::count(summary.containers(), "container");
    writeln!(out, "Right-sizing of {containers} in {}", names::printable(heading.source))?;
    writeln!(out, "{}, {}\n", heading.made_at(), summary.choice.describe())?;
    if !summary.rows.is_empty() {
        writeln!(out, "CPU:    {}", sentence(&summary.totals.cpu, cores))?;
        writeln!(out, "Memory: {}\n", sentence(&summary.totals.memory, units::memory))?;
        largest(summary, out)?;
        if summary.risks.is_empty() {
            writeln!(out, "No container is at risk.")?;
        } else {
            writeln!(out, "At risk: {}.", counted_risks(summary))?;
        }
    }
    for (reason, count) in reasons(summary) {
        writeln!(out, "No recommendation for {}: {reason}.", units::count(count, "container"))?;
    }
    Ok(())
}

/// `6.5 cores requested, 4 recommended (-2.5): …`.
pub(super) fn sentence(total: &Total, unit: fn(f64) -> String) -> String {
    let change = units::change(total.change(), unit);
    format!(
        "{} requested, {} recommended ({change}): {} too much in {}, {} too little in {}.",
        unit(total.requested),
        unit(total.needed),
        unit(total.saved),
        units::count(total.saving_containers, "container"),
        unit(total.missing),
        units::count(total.missing_containers, "container"),
    )
}

/// Cores with their unit, where nothing else says what they are.
pub(super) fn cores(amount: f64) -> String {
    let text = units::cpu(amount);
    match text.as_str() {
        "0" => "0 cores".to_owned(),
        "1" | "-1" => text + " core",
        _ if text.ends_with('m') => text,
        _ => text + " cores",
    }
}

fn largest(summary: &Summary<'_>, out: &mut String) -> fmt::Result {
    if summary.savings.is_empty() {
        return writeln!(out, "No container can request less.\n");
    }
    writeln!(out, "Largest savings:")?;
    for row in summary.savings.iter().take(NAMED_MAX).map(|i| &summary.rows[*i]) {
        let cpu = units::change(row.cpu.change(), cores);
        let memory = units::change(row.memory.change(), units::memory);
        writeln!(out, "  {}: CPU {cpu}, memory {memory}", names::path(&row.advice.member))?;
    }
    let more = summary.savings.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        writeln!(out, "  and {more} more")?;
    }
    writeln!(out)
}
