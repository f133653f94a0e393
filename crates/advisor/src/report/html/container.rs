//! The part of the page about one container: its amounts per pod, and a plot of CPU and of memory.

use std::fmt::{self, Write};

use super::{Text, chip};
use crate::model::recommendation::{BoxPlot, SlotUsage};
use crate::report::boxplot::Plot;
use crate::report::summary::{Resource, Row};
use crate::report::{risk, units};

pub(super) fn write(index: usize, row: &Row<'_>, out: &mut dyn Write) -> fmt::Result {
    let member = &row.advice.member;
    write!(
        out,
        "<article id=\"c{index}\"><h3>{} <span class=\"where\">{}/{} ({}) · {} · {}</span> ",
        Text(&member.container),
        Text(&member.namespace),
        Text(&member.workload),
        Text(&member.workload_type),
        units::count(row.pods as usize, "pod"),
        units::count(row.term.term.days() as usize, "day"),
    )?;
    for kind in risk::of(row) {
        chip(kind, out)?;
    }
    out.write_str("</h3><div class=\"pair\">")?;
    let cpu = |usage: &SlotUsage| usage.cpu;
    resource(
        index,
        row,
        Kind { name: "CPU", unit: units::cpu, binary: false },
        &row.cpu,
        cpu,
        out,
    )?;
    let memory = |usage: &SlotUsage| scaled(&usage.memory, row.memory_unit);
    let kind = Kind { name: "Memory", unit: units::memory, binary: true };
    resource(index, row, kind, &row.memory, memory, out)?;
    if let Some(slice) = &row.engine.accelerator {
        write!(out, "<p>GPU: one {}</p>", Text(&slice.resource()))?;
    }
    out.write_str("</div></article>\n")
}

struct Kind {
    name: &'static str,
    unit: fn(f64) -> String,
    binary: bool,
}

/// One resource: a line of amounts, then its plot.
fn resource(
    index: usize,
    row: &Row<'_>,
    kind: Kind,
    found: &Resource,
    of: impl Fn(&SlotUsage) -> BoxPlot,
    out: &mut dyn Write,
) -> fmt::Result {
    let Kind { name, unit, binary } = kind;
    let shown = |amount: Option<f64>| amount.map_or_else(|| "none".to_owned(), unit);
    write!(
        out,
        "<figure><figcaption><b>{name}</b> <span>request <b>{}</b></span> \
         <span>limit <b>{}</b></span> <span>recommended <b>{}</b></span>\
         </figcaption>",
        shown(found.request),
        shown(found.limit),
        shown(found.recommended),
    )?;
    if let Some(plots) = &row.available.plots {
        let slots = plots.slots.iter().map(|slot| (slot.end_ms, slot.usage.as_ref().map(&of)));
        let plot = Plot {
            id: format!("{}{index}", name.to_lowercase()),
            title: format!("{name} of {} over time", row.advice.member.container),
            term: row.term.term,
            slots: &slots.collect::<Vec<_>>(),
            request: found.request,
            limit: found.limit,
            recommended: found.recommended,
            unit,
            binary,
        };
        plot.write(out)?;
    } else {
        out.write_str("<p class=\"dim\">Plots were switched off.</p>")?;
    }
    out.write_str("</figure>")
}

fn scaled(found: &BoxPlot, unit: f64) -> BoxPlot {
    BoxPlot {
        min: found.min * unit,
        q1: found.q1 * unit,
        median: found.median * unit,
        q3: found.q3 * unit,
        max: found.max * unit,
    }
}
