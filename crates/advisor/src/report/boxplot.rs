//! A box plot as SVG: a term's slots from left to right, with the current request and limit and
//! the recommendation as lines across.

use std::fmt::{self, Write};

use jiff::Timestamp;

use super::html::Text;
use crate::model::recommendation::{BoxPlot, Term};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 180.0;
/// The area of the boxes. On its left are the amounts of the axis, on its right the names of lines.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 322.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 156.0;
/// The least distance of two names.
const LABEL_HEIGHT: f64 = 12.0;
/// A request or a limit this many times above all else is named but not drawn: the boxes would be
/// flat.
const FAR: f64 = 4.0;

/// One resource of one container over a term.
pub(super) struct Plot<'a> {
    /// Makes the ids within the page unique.
    pub id: String,
    pub title: String,
    pub term: Term,
    pub slots: &'a [(i64, Option<BoxPlot>)],
    pub request: Option<f64>,
    pub limit: Option<f64>,
    pub recommended: Option<f64>,
    pub unit: fn(f64) -> String,
    /// Whether units are powers of two.
    pub binary: bool,
}

struct Line {
    class: &'static str,
    name: &'static str,
    amount: f64,
}

/// From amounts to heights.
struct Scale {
    top: f64,
}

impl Scale {
    fn y(&self, amount: f64) -> f64 {
        BOTTOM - (amount / self.top).clamp(0.0, 1.0) * (BOTTOM - TOP)
    }
}

impl Plot<'_> {
    pub(super) fn write(&self, out: &mut dyn Write) -> fmt::Result {
        let scale = Scale { top: self.top() };
        let id = &self.id;
        write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}t {id}d\">\
             <title id=\"{id}t\">{}</title><desc id=\"{id}d\">{}</desc>",
            Text(&self.title),
            Text(&self.description()),
        )?;
        self.axis(&scale, out)?;
        self.boxes(&scale, out)?;
        self.lines(&scale, out)?;
        out.write_str("</svg>")
    }

    /// What the picture shows, in words.
    pub(super) fn description(&self) -> String {
        let drawn = || self.slots.iter().filter_map(|(_, it)| it.as_ref());
        let mut text = if drawn().next().is_none() {
            "Nothing was measured.".to_owned()
        } else {
            let medians = || drawn().map(|it| it.median);
            let least = medians().fold(f64::INFINITY, f64::min);
            let most = medians().fold(0.0, f64::max);
            let highest = drawn().map(|it| it.max).fold(0.0, f64::max);
            let unit = self.unit;
            format!(
                "Medians of {} boxes from {} to {}, highest use {}.",
                drawn().count(),
                unit(least),
                unit(most),
                unit(highest),
            )
        };
        for line in self.named() {
            let capital = line.name[..1].to_uppercase();
            text += &format!(" {capital}{} {}.", &line.name[1..], (self.unit)(line.amount));
        }
        for (name, amount) in [("request", self.request), ("limit", self.limit)] {
            if amount.is_none() {
                text += &format!(" No {name}.");
            }
        }
        text
    }

    fn named(&self) -> Vec<Line> {
        let line = |class, name, amount: Option<f64>| Some(Line { class, name, amount: amount? });
        let lines = [
            line("limit", "limit", self.limit),
            line("request", "request", self.request),
            line("advised", "recommended", self.recommended),
        ];
        lines.into_iter().flatten().collect()
    }

    /// The amount at the upper edge.
    fn top(&self) -> f64 {
        let used = self.slots.iter().filter_map(|(_, it)| Some(it.as_ref()?.max));
        let used = used.chain(self.recommended).fold(0.0, f64::max);
        let mut top = used;
        for amount in [self.request, self.limit].into_iter().flatten() {
            if used == 0.0 || amount <= used * FAR {
                top = top.max(amount);
            }
        }
        if top > 0.0 { top * 1.06 } else { 1.0 }
    }

    /// Horizontal lines at round amounts, and the ends of slots below.
    fn axis(&self, scale: &Scale, out: &mut dyn Write) -> fmt::Result {
        let step = round_step(scale.top / 4.0, self.binary);
        let mut grid = String::new();
        let ticks = (0..).map(|i| f64::from(i) * step).take_while(|amount| *amount <= scale.top);
        for amount in ticks {
            let y = scale.y(amount);
            write!(grid, "M{LEFT} {y:.1}H{RIGHT}")?;
            let x = LEFT - 5.0;
            let text = (self.unit)(amount);
            write!(out, "<text class=\"tick end\" x=\"{x}\" y=\"{:.1}\">{text}</text>", y + 3.5)?;
        }
        write!(out, "<path class=\"grid\" d=\"{grid}\"/>")?;
        // As many as can be read.
        let every = self.slots.len().div_ceil(5).max(1);
        let count = self.slots.len();
        for (i, (end_ms, _)) in self.slots.iter().enumerate() {
            if (count - 1 - i).is_multiple_of(every) {
                let (x, y) = (self.center(i), BOTTOM + 15.0);
                let text = self.end(*end_ms);
                write!(out, "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{y}\">{text}</text>")?;
            }
        }
        Ok(())
    }

    /// The label of a slot: when it ends.
    fn end(&self, end_ms: i64) -> String {
        let format = if self.term == Term::Short { "%H:%M" } else { "%-d %b" };
        let at = Timestamp::from_millisecond(end_ms);
        at.map(|at| at.strftime(format).to_string()).unwrap_or_default()
    }

    fn slot_width(&self) -> f64 {
        (RIGHT - LEFT) / self.slots.len().max(1) as f64
    }

    fn center(&self, slot: usize) -> f64 {
        LEFT + (slot as f64 + 0.5) * self.slot_width()
    }

    /// All boxes in three paths, which keeps pages of many plots small.
    fn boxes(&self, scale: &Scale, out: &mut dyn Write) -> fmt::Result {
        let half = (self.slot_width() * 0.3).min(16.0);
        let (mut whiskers, mut boxes, mut medians) = (String::new(), String::new(), String::new());
        for (i, (_, drawn)) in self.slots.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let x = self.center(i);
            let (left, right, cap) = (x - half, x + half, half / 2.0);
            let [min, q1, median, q3, max] =
                [drawn.min, drawn.q1, drawn.median, drawn.q3, drawn.max].map(|it| scale.y(it));
            write!(whiskers, "M{x:.1} {min:.1}V{q1:.1}M{x:.1} {q3:.1}V{max:.1}")?;
            for end in [min, max] {
                write!(whiskers, "M{:.1} {end:.1}H{:.1}", x - cap, x + cap)?;
            }
            write!(boxes, "M{left:.1} {q1:.1}H{right:.1}V{q3:.1}H{left:.1}Z")?;
            write!(medians, "M{left:.1} {median:.1}H{right:.1}")?;
        }
        if whiskers.is_empty() {
            let (x, y) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
            return write!(
                out,
                "<text class=\"tick mid\" x=\"{x}\" y=\"{y}\">nothing measured</text>"
            );
        }
        write!(
            out,
            "<path class=\"whisker\" d=\"{whiskers}\"/><path class=\"box\" d=\"{boxes}\"/>\
             <path class=\"median\" d=\"{medians}\"/>"
        )
    }

    /// The lines across, with their names on the right.
    fn lines(&self, scale: &Scale, out: &mut dyn Write) -> fmt::Result {
        let mut lines = self.named();
        lines.sort_by(|a, b| b.amount.total_cmp(&a.amount));
        let heights: Vec<f64> = lines.iter().map(|line| scale.y(line.amount)).collect();
        for ((line, y), label) in lines.iter().zip(&heights).zip(spread(&heights)) {
            let Line { class, name, amount } = line;
            let far = *amount > scale.top;
            if !far {
                write!(out, "<path class=\"{class}\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
                let (x, end) = (RIGHT, RIGHT + 8.0);
                write!(out, "<path class=\"lead\" d=\"M{x} {y:.1}L{end} {label:.1}\"/>")?;
            }
            let (x, y) = (RIGHT + 11.0, label + 3.5);
            let arrow = if far { " ↑" } else { "" };
            let amount = (self.unit)(*amount);
            write!(
                out,
                "<text class=\"name {class}\" x=\"{x}\" y=\"{y:.1}\">{name} {amount}{arrow}</text>"
            )?;
        }
        Ok(())
    }
}

/// A round step, not below `least`: a power of two where units are binary, else 1, 2 or 5 times a
/// power of ten.
fn round_step(least: f64, binary: bool) -> f64 {
    if binary {
        return least.log2().ceil().exp2();
    }
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|it| it * power >= least * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Moves the heights of names apart, from the top down, and back up from the bottom.
fn spread(heights: &[f64]) -> Vec<f64> {
    let mut labels: Vec<f64> = heights.to_vec();
    let mut least = f64::NEG_INFINITY;
    for label in &mut labels {
        *label = label.max(least);
        least = *label + LABEL_HEIGHT;
    }
    let mut most = BOTTOM;
    for label in labels.iter_mut().rev() {
        *label = label.min(most);
        most = *label - LABEL_HEIGHT;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::units;

    #[test]
    fn steps_are_round() {
        for (least, binary, step) in [
            (0.03, false, 0.05),
            (0.1, false, 0.1),
            (0.11, false, 0.2),
            (7.0, false, 10.0),
            (30.0 * 1024.0, true, 32.0 * 1024.0),
            (65_536.0, true, 65_536.0),
        ] {
            let found = round_step(least, binary);
            assert!((found - step).abs() < step * 1e-9, "{least}: {found}");
        }
    }

    #[test]
    fn names_do_not_overlap_and_stay_inside() {
        for heights in [vec![20.0, 21.0, 22.0], vec![150.0, 155.0, 156.0], vec![12.0, 12.0, 156.0]]
        {
            let labels = spread(&heights);
            assert!(labels.windows(2).all(|two| two[1] - two[0] >= LABEL_HEIGHT - 1e-9));
            assert!(labels.iter().all(|label| (0.0..=BOTTOM).contains(label)), "{labels:?}");
        }
    }

    fn plot(slots: &[(i64, Option<BoxPlot>)]) -> Plot<'_> {
        Plot {
            id: "p1".into(),
            title: "CPU of <web>".into(),
            term: Term::Long,
            slots,
            request: Some(0.5),
            limit: Some(9.0),
            recommended: Some(0.25),
            unit: units::cpu,
            binary: false,
        }
    }

    #[test]
    fn a_limit_that_is_far_above_is_named_and_not_drawn() {
        let drawn = BoxPlot { min: 0.1, q1: 0.1, median: 0.2, q3: 0.2, max: 0.25 };
        let slots = [(0, Some(drawn)), (86_400_000, None)];
        let plot = plot(&slots);
        let mut svg = String::new();
        plot.write(&mut svg).unwrap();
        assert!(svg.contains(">limit 9 ↑</text>") && !svg.contains("<path class=\"limit\""));
        assert!(svg.contains(">request 500m</text>") && svg.contains("<path class=\"request\""));
        assert!(svg.contains("CPU of &lt;web&gt;") && !svg.contains("<web>"));
        assert_eq!(
            plot.description(),
            "Medians of 1 boxes from 200m to 200m, highest use 250m. Limit 9. Request 500m. \
             Recommended 250m."
        );
    }

    #[test]
    fn nothing_measured_is_said() {
        let mut svg = String::new();
        let slots = [(0, None)];
        let plot = Plot { request: None, limit: None, recommended: None, ..plot(&slots) };
        plot.write(&mut svg).unwrap();
        assert!(svg.contains("nothing measured") && !svg.contains("NaN"), "{svg}");
        assert_eq!(plot.description(), "Nothing was measured. No request. No limit.");
    }
}
