//! The report as one HTML file that needs nothing else: no scripts, no network. It can be mailed,
//! printed, and read in a dark room.

mod container;

use std::fmt::{self, Display, Write};

use super::mail::cores;
use super::risk::RiskKind;
use super::summary::{Row, Summary, Total};
use super::table::reasons;
use super::{Heading, names, units};

/// Lines of each table.
const LINES_MAX: usize = 25;
/// Containers with plots: about 8 KB each, so that the file can be mailed.
const PLOTS_MAX: usize = 200;

const STYLE: &str = include_str!("style.css");

/// Writes the page.
pub fn write(summary: &Summary<'_>, heading: &Heading<'_>, out: &mut dyn Write) -> fmt::Result {
    let page = Page { summary, order: summary.by_importance() };
    page.head(heading, out)?;
    page.totals(out)?;
    if !summary.rows.is_empty() {
        page.savings(out)?;
        page.risks(out)?;
        page.containers(out)?;
    }
    page.skipped(out)?;
    page.reading(out)?;
    out.write_str("</main></body></html>\n")
}

struct Page<'a> {
    summary: &'a Summary<'a>,
    /// The rows in the order of their sections.
    order: Vec<usize>,
}

impl Page<'_> {
    fn head(&self, heading: &Heading<'_>, out: &mut dyn Write) -> fmt::Result {
        let source = Text(heading.source);
        // Even if a name got past the escaping, the policy lets nothing run or load.
        write!(
            out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
             <meta name=\"color-scheme\" content=\"light dark\"/>\
             <meta name=\"referrer\" content=\"no-referrer\"/>\
             <title>Right-sizing of {source}</title><style>{STYLE}</style></head><body><main>\
             <header><h1>Right-sizing report</h1><p>{source} · {} · {}</p></header>\n",
            heading.made_at(),
            Text(&self.summary.choice.describe()),
        )
    }

    fn totals(&self, out: &mut dyn Write) -> fmt::Result {
        let totals = &self.summary.totals;
        out.write_str("<section class=\"totals\" aria-label=\"Totals\">")?;
        if !self.summary.rows.is_empty() {
            total("CPU requests", &totals.cpu, cores, out)?;
            total("Memory requests", &totals.memory, units::memory, out)?;
        }
        let containers = units::count(self.summary.containers(), "container");
        let pods = units::count(totals.pods as usize, "pod");
        let at_risk = self.summary.containers_at_risk();
        write!(out, "<div class=\"card\"><h2>{containers}</h2>")?;
        match at_risk {
            0 => write!(out, "<p class=\"big\">none at risk</p>")?,
            _ => write!(out, "<p class=\"big warn\">{at_risk} at risk</p>")?,
        }
        out.write_str("<ul>")?;
        for kind in RiskKind::ALL {
            let count = self.summary.risks.iter().filter(|risk| risk.kind == kind).count();
            if count > 0 {
                write!(out, "<li><b>{count}</b> {}</li>", kind.as_str())?;
            }
        }
        write!(out, "<li><b>{}</b> can request less</li>", self.summary.savings.len())?;
        if !self.summary.skipped.is_empty() {
            let skipped = self.summary.skipped.len();
            write!(out, "<li><b>{skipped}</b> without recommendation</li>")?;
        }
        writeln!(out, "</ul><p class=\"dim\">{pods} with a recommendation</p></div></section>")
    }

    fn savings(&self, out: &mut dyn Write) -> fmt::Result {
        let summary = self.summary;
        let totals = &summary.totals;
        out.write_str("<section><h2>Largest savings</h2>")?;
        if summary.savings.is_empty() {
            return out.write_str("<p>No container can request less.</p></section>\n");
        }
        out.write_str(
            "<p class=\"dim\">Requests of all pods, now and as recommended. Ranked by the share of \
             the total CPU and memory requests that each container frees.</p>\
             <div class=\"scroll\"><table><thead><tr><th scope=\"col\" rowspan=\"2\">Container</th>\
             <th scope=\"col\" rowspan=\"2\" class=\"n\">Pods</th>\
             <th scope=\"colgroup\" colspan=\"3\" class=\"mid g\">CPU</th>\
             <th scope=\"colgroup\" colspan=\"3\" class=\"mid g\">Memory</th></tr><tr>",
        )?;
        for _ in 0..2 {
            out.write_str(
                "<th scope=\"col\" class=\"n g\">now</th><th scope=\"col\" class=\"n\">new</th>\
                 <th scope=\"col\" class=\"n\">change</th>",
            )?;
        }
        out.write_str("</tr></thead><tbody>\n")?;
        for (i, row) in summary.savings.iter().take(LINES_MAX).map(|i| (*i, &summary.rows[*i])) {
            write!(out, "<tr><th scope=\"row\">")?;
            self.name(i, row, out)?;
            write!(out, "</th><td class=\"n\">{}</td>", row.pods)?;
            let (cpu, memory) = (&row.cpu, &row.memory);
            amounts(cpu.requested(), cpu.needed(), cpu.change(), units::cpu, out)?;
            amounts(memory.requested(), memory.needed(), memory.change(), units::memory, out)?;
            out.write_str("</tr>\n")?;
        }
        let all = units::count(summary.rows.len(), "container");
        write!(
            out,
            "</tbody><tfoot><tr><th scope=\"row\">All {all}</th><td class=\"n\">{}</td>",
            totals.pods
        )?;
        let (cpu, memory) = (&totals.cpu, &totals.memory);
        amounts(cpu.requested, cpu.needed, cpu.change(), units::cpu, out)?;
        amounts(memory.requested, memory.needed, memory.change(), units::memory, out)?;
        out.write_str("</tr></tfoot></table></div>")?;
        more(summary.savings.len(), "can request less", out)?;
        out.write_str("</section>\n")
    }

    fn risks(&self, out: &mut dyn Write) -> fmt::Result {
        let summary = self.summary;
        out.write_str("<section><h2>Containers at risk</h2>")?;
        if summary.risks.is_empty() {
            return out.write_str("<p>No container is at risk.</p></section>\n");
        }
        out.write_str(
            "<p class=\"dim\">Per pod, the worst first.</p><div class=\"scroll\"><table><thead><tr>\
             <th scope=\"col\">Container</th><th scope=\"col\" class=\"n\">Pods</th>\
             <th scope=\"col\">Risk</th><th scope=\"col\">Now</th>\
             <th scope=\"col\">Recommended</th></tr></thead><tbody>\n",
        )?;
        for risk in summary.risks.iter().take(LINES_MAX) {
            let row = &summary.rows[risk.row];
            let (now, recommended) = risk.kind.details(row);
            out.write_str("<tr><th scope=\"row\">")?;
            self.name(risk.row, row, out)?;
            write!(out, "</th><td class=\"n\">{}</td><td>", row.pods)?;
            chip(risk.kind, out)?;
            writeln!(out, "</td><td>{}</td><td>{}</td></tr>", Text(&now), Text(&recommended))?;
        }
        out.write_str("</tbody></table></div>")?;
        more(summary.risks.len(), "at risk", out)?;
        out.write_str("</section>\n")
    }

    fn containers(&self, out: &mut dyn Write) -> fmt::Result {
        let rows = self.summary.rows.len();
        out.write_str("<section><h2>Use over time</h2><p class=\"dim\">")?;
        if rows > PLOTS_MAX {
            write!(
                out,
                "The first {PLOTS_MAX} of {rows} containers, those at risk and with the largest \
                 savings first. The CSV output lists all. "
            )?;
        }
        out.write_str(
            "A box spans the middle half of the 15-minute peaks of its slot, the thick line is the \
             median, and the whiskers reach the lowest and the highest value.</p>\n",
        )?;
        for row in self.order.iter().take(PLOTS_MAX) {
            container::write(*row, &self.summary.rows[*row], out)?;
        }
        out.write_str("</section>\n")
    }

    fn skipped(&self, out: &mut dyn Write) -> fmt::Result {
        if self.summary.skipped.is_empty() {
            return Ok(());
        }
        out.write_str("<section><h2>No recommendation</h2><ul>")?;
        for (reason, count) in reasons(self.summary) {
            let containers = units::count(count, "container");
            write!(out, "<li>{containers}: {}</li>", Text(&reason))?;
        }
        out.write_str("</ul><p class=\"dim\">")?;
        for (i, skipped) in self.summary.skipped.iter().take(LINES_MAX).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(out, "{comma}{}", Text(&names::path(&skipped.advice.member)))?;
        }
        if self.summary.skipped.len() > LINES_MAX {
            write!(out, ", and {} more", self.summary.skipped.len() - LINES_MAX)?;
        }
        out.write_str("</p></section>\n")
    }

    fn reading(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str(
            "<footer><h2>How to read this</h2><dl>\
             <dt>Recommended</dt><dd>One amount for the request and the limit of a pod, from what it \
             used in the term. Memory has head-room above the highest use. CPU of one core and more \
             is the 60th percentile for the cost engine and the 98th for the performance \
             engine.</dd>\
             <dt>Pods</dt><dd>The most that ran at once in the term.</dd>\
             <dt>Out of memory</dt><dd>The recommendation is above the memory limit: the container \
             is killed when it needs that much.</dd>\
             <dt>CPU throttling</dt><dd>The recommendation is above the CPU limit.</dd>\
             <dt>No requests</dt><dd>The scheduler reserves nothing, and the container is evicted \
             first.</dd>\
             <dt>Requests too little</dt><dd>It needs over a tenth more than it requests: when its node \
             is full, it is evicted early or waits for CPU.</dd>\
             <dt>Idle</dt><dd>It requests CPU and uses less than a thousandth of a core. Without a \
             recommendation its request counts as unchanged in the totals.</dd></dl></footer>",
        )
    }

    /// The name of a container, which leads to its plots if it has them.
    fn name(&self, index: usize, row: &Row<'_>, out: &mut dyn Write) -> fmt::Result {
        let linked = self.order.iter().take(PLOTS_MAX).any(|other| *other == index);
        let member = &row.advice.member;
        let container = Text(&member.container);
        if linked {
            write!(out, "<a href=\"#c{index}\">{container}</a>")?;
        } else {
            write!(out, "{container}")?;
        }
        write!(
            out,
            " <span class=\"where\">{}/{}</span>",
            Text(&member.namespace),
            Text(&member.workload)
        )
    }
}

/// A card with one resource: the change in large, and two bars.
fn total(title: &str, total: &Total, unit: fn(f64) -> String, out: &mut dyn Write) -> fmt::Result {
    let change = total.change();
    let (class, what) = if change > 0.0 { ("more", "more") } else { ("less", "less") };
    write!(out, "<div class=\"card\"><h2>{title}</h2>")?;
    match unit(change.abs()) {
        text if text == unit(0.0) => out.write_str("<p class=\"big\">no change</p>")?,
        text => {
            let percent = total.share(change.abs()) * 100.0;
            write!(out, "<p class=\"big {class}\">{text} {what}")?;
            if percent > 0.0 {
                write!(out, " <small>{percent:.0} %</small>")?;
            }
            out.write_str("</p>")?;
        }
    }
    let largest = total.requested.max(total.needed);
    for (class, name, amount) in
        [("now", "requested", total.requested), ("new", "recommended", total.needed)]
    {
        let percent = if largest > 0.0 { amount / largest * 100.0 } else { 0.0 };
        write!(
            out,
            "<div class=\"bar\"><i class=\"{class}\" style=\"width:{percent:.1}%\"></i></div>\
             <p class=\"what\"><span>{name}</span><b>{}</b></p>",
            unit(amount)
        )?;
    }
    let less = units::count(total.saving_containers, "container");
    let more = units::count(total.missing_containers, "container");
    write!(
        out,
        "<ul><li><b>{}</b> too much in {less}</li><li><b>{}</b> too little in {more}</li></ul></div>",
        unit(total.saved),
        unit(total.missing)
    )
}

/// The three cells of a resource: now, as recommended, and the change.
fn amounts(
    now: f64,
    new: f64,
    change: f64,
    unit: fn(f64) -> String,
    out: &mut dyn Write,
) -> fmt::Result {
    let (now, new) = (unit(now), unit(new));
    write!(out, "<td class=\"n g\">{now}</td><td class=\"n\">{new}</td>")?;
    write!(out, "<td class=\"n {}\">{}</td>", direction(change), units::change(change, unit))
}

/// The class of a change.
fn direction(change: f64) -> &'static str {
    if change < 0.0 {
        "less"
    } else if change > 0.0 {
        "more"
    } else {
        "dim"
    }
}

fn chip(kind: RiskKind, out: &mut dyn Write) -> fmt::Result {
    let class = match kind {
        RiskKind::OutOfMemory => "bad",
        RiskKind::Throttling | RiskKind::NoRequests => "warn",
        RiskKind::RequestsTooLittle | RiskKind::Idle => "calm",
    };
    write!(out, "<span class=\"chip {class}\">{}</span>", kind.as_str())
}

fn more(all: usize, what: &str, out: &mut dyn Write) -> fmt::Result {
    let more = all.saturating_sub(LINES_MAX);
    if more == 0 {
        return Ok(());
    }
    write!(out, "<p class=\"dim\">{more} more {what}. The CSV output lists all.</p>")
}

/// Text in HTML, between tags or in a quoted attribute.
pub(super) struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if names::hidden(c) => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
