//! Collects figures and prints them: a table for people, an object per line for scripts.

use serde_json::json;

pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    /// What a bare loop, or a bare server, reached in the same run.
    pub baseline: Option<f64>,
    pub target: String,
    pub met: bool,
}

pub struct Figures {
    json: bool,
    all: Vec<Figure>,
}

/// What a figure must reach.
#[derive(Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// At least so much, and at least this share of the baseline.
    AtLeastAndShare(f64, f64),
    /// At least this share of the baseline.
    Share(f64),
}

impl Figures {
    pub fn new(json: bool) -> Figures {
        Figures { json, all: Vec::new() }
    }

    pub fn add(
        &mut self,
        name: &str,
        value: f64,
        unit: &'static str,
        baseline: Option<f64>,
        target: Target,
    ) {
        let share = baseline.map_or(0.0, |baseline| value / baseline);
        let (met, target) = match target {
            Target::AtLeast(least) => (value >= least, format!(">= {least}")),
            Target::AtMost(most) => (value <= most, format!("<= {most}")),
            Target::AtLeastAndShare(least, part) => {
                (value >= least && share >= part, format!(">= {least} and >= {part} of baseline"))
            }
            Target::Share(part) => (share >= part, format!(">= {part} of baseline")),
        };
        let figure = Figure { name: name.into(), value, unit, baseline, target, met };
        if self.json {
            println!("{}", figure.json());
        } else {
            eprintln!("{}", figure.line());
        }
        self.all.push(figure);
    }

    pub fn print(&self) {
        if self.json {
            return;
        }
        println!(
            "{:<58} {:>12} {:<6} {:>12} {:>6}  target",
            "what", "value", "unit", "baseline", "ratio"
        );
        for figure in &self.all {
            println!("{}", figure.line());
        }
    }
}

impl Figure {
    fn ratio(&self) -> Option<f64> {
        self.baseline.map(|baseline| self.value / baseline)
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "name": self.name, "value": self.value, "unit": self.unit, "baseline": self.baseline,
            "ratio": self.ratio(), "target": self.target, "met": self.met,
        })
    }

    fn line(&self) -> String {
        let number =
            |value: Option<f64>| value.map_or(String::from("-"), |value| format!("{value:.2}"));
        let (baseline, ratio) = (number(self.baseline), number(self.ratio()));
        let met = if self.met { "met" } else { "NOT MET" };
        format!(
            "{:<58} {:>12.2} {:<6} {baseline:>12} {ratio:>6}  {} ({met})",
            self.name, self.value, self.unit, self.target
        )
    }
}

/// The value below which this part of the samples lies.
pub fn percentile(samples: &mut [f64], part: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    samples.get((last as f64 * part).round() as usize).copied().unwrap_or(0.0)
}
