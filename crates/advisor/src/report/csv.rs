//! One line for each container, with every number, for a spreadsheet (RFC 4180).

use std::fmt::{self, Write};

use super::risk;
use super::summary::{Engine, Row, Summary};
use super::units;
use crate::model::inventory::Member;
use crate::model::notice::Notices;
use crate::model::recommendation::Term;

const HEAD: [&str; 26] = [
    "namespace",
    "workload",
    "workload_type",
    "container",
    "image",
    "experiment",
    "term",
    "engine",
    "pods",
    "cpu_request_cores",
    "cpu_limit_cores",
    "cpu_recommended_cores",
    "cpu_change_all_pods_cores",
    "cpu_change_share",
    "memory_request_bytes",
    "memory_limit_bytes",
    "memory_recommended_bytes",
    "memory_change_all_pods_bytes",
    "memory_change_share",
    "gpu_slice",
    "risks",
    "notices",
    "monitoring_start",
    "monitoring_end",
    "saving_rank",
    "no_recommendation_because",
];

/// Writes a header and a line for each container: first those with a recommendation, in the order
/// that they came in.
///
/// Amounts are per pod unless their column says otherwise. After the chosen term and engine come
/// the amounts of all of them.
pub fn write(summary: &Summary<'_>, out: &mut dyn Write) -> fmt::Result {
    let mut head: Vec<String> = HEAD.iter().map(|name| (*name).to_owned()).collect();
    for (term, engine) in choices() {
        let name = format!("{}_{}", term.as_str(), engine.as_str());
        head.push(format!("{name}_cpu_cores"));
        head.push(format!("{name}_memory_bytes"));
        head.push(format!("{name}_pods"));
    }
    let columns = head.len();
    line(head.into_iter().map(Cell::Text), out)?;
    let mut ranks = vec![None; summary.rows.len()];
    summary.savings.iter().enumerate().for_each(|(rank, row)| ranks[*row] = Some(rank + 1));
    for (row, rank) in summary.rows.iter().zip(ranks) {
        line(container(summary, row, rank), out)?;
    }
    for skipped in &summary.skipped {
        let mut cells = names(&skipped.advice.member, &skipped.advice.experiment);
        cells.resize(HEAD.len() - 1, Cell::Nothing);
        cells.push(Cell::Text(skipped.reason.to_owned()));
        cells.resize(columns, Cell::Nothing);
        line(cells, out)?;
    }
    Ok(())
}

fn choices() -> impl Iterator<Item = (Term, Engine)> {
    let engines = [Engine::Cost, Engine::Performance];
    Term::ALL.into_iter().flat_map(move |term| engines.map(|engine| (term, engine)))
}

fn names(member: &Member, experiment: &str) -> Vec<Cell> {
    let names = [
        member.namespace.as_str(),
        &member.workload,
        &member.workload_type,
        &member.container,
        &member.image,
        experiment,
    ];
    names.into_iter().map(|name| Cell::Text(name.to_owned())).collect()
}

fn container(summary: &Summary<'_>, row: &Row<'_>, rank: Option<usize>) -> Vec<Cell> {
    let (cpu, memory, totals) = (&row.cpu, &row.memory, &summary.totals);
    let mut cells = names(&row.advice.member, &row.advice.experiment);
    cells.extend([
        Cell::Text(row.term.term.as_str().to_owned()),
        Cell::Text(summary.choice.engine.as_str().to_owned()),
        Cell::Number(f64::from(row.pods)),
        number(cpu.request),
        number(cpu.limit),
        number(cpu.recommended),
        Cell::Number(cpu.change()),
        Cell::Number(totals.cpu.share(cpu.change())),
        number(memory.request),
        number(memory.limit),
        number(memory.recommended),
        Cell::Number(memory.change()),
        Cell::Number(totals.memory.share(memory.change())),
        row.engine.accelerator.as_ref().map_or(Cell::Nothing, |slice| Cell::Text(slice.resource())),
        Cell::Text(risk::of(row).map(risk::RiskKind::as_str).collect::<Vec<_>>().join("; ")),
        Cell::Text(codes([row.snapshot.notices, row.term.notices, row.engine.notices])),
        Cell::Text(units::time(row.available.monitoring_start_ms)),
        Cell::Text(units::time(row.snapshot.monitoring_end_ms)),
        rank.map_or(Cell::Nothing, |rank| Cell::Number(rank as f64)),
        Cell::Nothing,
    ]);
    for (term, engine) in choices() {
        let available = row.snapshot.term(term).available.as_ref();
        let engine = available.map(|it| engine.of(it));
        let amounts = engine.map(|it| it.config.requests).unwrap_or_default();
        cells.push(number(amounts.cpu));
        cells.push(number(amounts.memory.map(|amount| amount * row.memory_unit)));
        cells.push(number(engine.map(|it| f64::from(it.pods_count))));
    }
    cells
}

/// The codes that say more than that there is a recommendation.
fn codes(notices: [Notices; 3]) -> String {
    use crate::model::notice::Level;
    let all = notices.into_iter().flat_map(Notices::iter);
    let codes = all.filter(|notice| notice.level() != Level::Info).map(|it| it.code().to_string());
    codes.collect::<Vec<_>>().join("; ")
}

fn number(amount: Option<f64>) -> Cell {
    amount.map_or(Cell::Nothing, Cell::Number)
}

#[derive(Debug, Clone)]
enum Cell {
    Text(String),
    Number(f64),
    Nothing,
}

fn line(cells: impl IntoIterator<Item = Cell>, out: &mut dyn Write) -> fmt::Result {
    for (i, cell) in cells.into_iter().enumerate() {
        if i > 0 {
            out.write_char(',')?;
        }
        match cell {
            Cell::Text(text) => write_text(&text, out)?,
            Cell::Number(number) => write!(out, "{number}")?,
            Cell::Nothing => {}
        }
    }
    out.write_str("\r\n")
}

/// A text that a spreadsheet would run as a formula gets an apostrophe before it: names come from
/// a data source. Numbers are ours and stay numbers, also below 0.
fn write_text(text: &str, out: &mut dyn Write) -> fmt::Result {
    let starts_formula = |c: char| {
        matches!(c, '=' | '+' | '-' | '@' | '\t' | '\r' | '\n' | '＝' | '＋' | '－' | '＠')
    };
    let guard = text.trim_start().starts_with(starts_formula) || text.starts_with(starts_formula);
    // A semicolon separates where a comma is the decimal point.
    let quoted = guard || text.contains([',', ';', '"', '\r', '\n', '\t']);
    let guard = if guard { "'" } else { "" };
    if quoted {
        write!(out, "\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        out.write_str(text)
    }
}
