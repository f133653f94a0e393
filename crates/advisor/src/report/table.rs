//! The report for a terminal: two tables that fit into 120 columns, and what they leave out.

use std::fmt::{self, Write};

use super::risk::RiskKind;
use super::summary::Summary;
use super::{names, units};

/// Lines of each table.
const LINES_MAX: usize = 15;
const WIDTH_MAX: usize = 120;
const GAP: usize = 2;

/// Writes the largest savings and the containers at risk.
pub fn write(summary: &Summary<'_>, out: &mut dyn Write) -> fmt::Result {
    if summary.containers() == 0 {
        return writeln!(out, "No containers were found.");
    }
    if !summary.rows.is_empty() {
        writeln!(out, "Requests of all pods ({})\n", summary.choice.describe())?;
        savings(summary).write(out)?;
        more(summary.savings.len(), "container can", "containers can", "request less", out)?;
        writeln!(out)?;
        if summary.risks.is_empty() {
            writeln!(out, "No container is at risk.")?;
        } else {
            writeln!(out, "Containers at risk, per pod\n")?;
            risks(summary).write(out)?;
            more(summary.risks.len(), "risk", "risks", "", out)?;
        }
        writeln!(out)?;
    }
    skipped(summary, out)
}

/// Says what a table does not show.
fn more(all: usize, one: &str, many: &str, what: &str, out: &mut dyn Write) -> fmt::Result {
    let more = all.saturating_sub(LINES_MAX);
    if more == 0 {
        return Ok(());
    }
    let subject = if more == 1 { one } else { many };
    let text = format!("… {more} more {subject} {what}");
    writeln!(out, "{}: -o csv lists all", text.trim_end())
}

fn savings(summary: &Summary<'_>) -> Grid {
    let mut grid = Grid::new(&[
        ("LARGEST SAVINGS", Align::Name),
        ("PODS", Align::Right),
        ("CPU NOW", Align::Right),
        ("CPU NEW", Align::Right),
        ("CHANGE", Align::Right),
        ("MEMORY NOW", Align::Right),
        ("MEMORY NEW", Align::Right),
        ("CHANGE", Align::Right),
    ]);
    for row in summary.savings.iter().take(LINES_MAX).map(|i| &summary.rows[*i]) {
        let (cpu, memory) = (&row.cpu, &row.memory);
        grid.rows.push(vec![
            names::path(&row.advice.member),
            row.pods.to_string(),
            units::cpu(cpu.requested()),
            units::cpu(cpu.needed()),
            units::change(cpu.change(), units::cpu),
            units::memory(memory.requested()),
            units::memory(memory.needed()),
            units::change(memory.change(), units::memory),
        ]);
    }
    let totals = &summary.totals;
    grid.rows.push(vec![
        format!("all {}", units::count(summary.rows.len(), "container")),
        totals.pods.to_string(),
        units::cpu(totals.cpu.requested),
        units::cpu(totals.cpu.needed),
        units::change(totals.cpu.change(), units::cpu),
        units::memory(totals.memory.requested),
        units::memory(totals.memory.needed),
        units::change(totals.memory.change(), units::memory),
    ]);
    grid.total = true;
    grid
}

fn risks(summary: &Summary<'_>) -> Grid {
    let mut grid = Grid::new(&[
        ("CONTAINER", Align::Name),
        ("PODS", Align::Right),
        ("RISK", Align::Left),
        ("NOW", Align::Left),
        ("RECOMMENDED", Align::Left),
    ]);
    for risk in summary.risks.iter().take(LINES_MAX) {
        let row = &summary.rows[risk.row];
        let (now, recommended) = risk.kind.details(row);
        grid.rows.push(vec![
            names::path(&row.advice.member),
            row.pods.to_string(),
            risk.kind.as_str().to_owned(),
            now,
            recommended,
        ]);
    }
    grid
}

/// How many of each kind: `1 out of memory, 2 idle`.
pub(super) fn counted_risks(summary: &Summary<'_>) -> String {
    let counted = RiskKind::ALL.into_iter().filter_map(|kind| {
        let count = summary.risks.iter().filter(|risk| risk.kind == kind).count();
        (count > 0).then(|| format!("{count} {}", kind.as_str()))
    });
    counted.collect::<Vec<_>>().join(", ")
}

/// The containers without a recommendation, by reason.
fn skipped(summary: &Summary<'_>, out: &mut dyn Write) -> fmt::Result {
    for (reason, count) in reasons(summary) {
        let containers = units::count(count, "container");
        writeln!(out, "No recommendation for {containers}: {reason}")?;
    }
    Ok(())
}

/// Why containers have no recommendation, and how many of them: the most frequent reasons.
pub(super) fn reasons(summary: &Summary<'_>) -> Vec<(String, usize)> {
    const REASONS_MAX: usize = 5;
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    summary.skipped.iter().for_each(|it| *counts.entry(it.reason).or_default() += 1);
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest: usize = counts.iter().skip(REASONS_MAX).map(|(_, count)| count).sum();
    counts.truncate(REASONS_MAX);
    let mut reasons: Vec<(String, usize)> =
        counts.into_iter().map(|(reason, count)| (names::printable(reason), count)).collect();
    if rest > 0 {
        reasons.push(("other reasons".to_owned(), rest));
    }
    reasons
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Align {
    /// To the left, and shortened if the line would be too long.
    Name,
    Left,
    Right,
}

/// Aligned columns.
struct Grid {
    head: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    /// Whether the last row is set apart.
    total: bool,
}

impl Grid {
    fn new(head: &[(&'static str, Align)]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new(), total: false }
    }

    fn write(&self, out: &mut dyn Write) -> fmt::Result {
        let widths = self.widths();
        let head: Vec<String> = self.head.iter().map(|(title, _)| (*title).to_owned()).collect();
        self.line(&head, &widths, out)?;
        for (i, row) in self.rows.iter().enumerate() {
            if self.total && i + 1 == self.rows.len() {
                let width: usize = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
                writeln!(out, "{}", "─".repeat(width))?;
            }
            self.line(row, &widths, out)?;
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let cells = |column: usize| self.rows.iter().map(move |row| row[column].chars().count());
        let head = self.head.iter().enumerate();
        let mut widths: Vec<usize> = head
            .map(|(i, (title, _))| cells(i).max().unwrap_or(0).max(title.chars().count()))
            .collect();
        let used: usize = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
        let excess = used.saturating_sub(WIDTH_MAX);
        for (width, (title, align)) in widths.iter_mut().zip(&self.head) {
            if *align == Align::Name {
                *width = width.saturating_sub(excess).max(title.chars().count());
            }
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize], out: &mut dyn Write) -> fmt::Result {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.head) {
            let cell = names::shortened(cell, *width);
            match align {
                Align::Right => write!(line, "{cell:>width$}")?,
                Align::Name | Align::Left => write!(line, "{cell:<width$}")?,
            }
            line.push_str(&" ".repeat(GAP));
        }
        writeln!(out, "{}", line.trim_end())
    }
}
