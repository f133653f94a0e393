//! A row of steps: a heading before each, how long each took at the end.

use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Default)]
pub struct Steps {
    took: Vec<(String, Duration, &'static str)>,
}

impl Steps {
    /// Does one step. The first that fails ends the row.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("\n== {name}");
        let begun = Instant::now();
        let done = work();
        let said = if done.is_ok() { "ok" } else { "FAILED" };
        self.took.push((name.into(), begun.elapsed(), said));
        done
    }

    pub fn skip(&mut self, name: &str, why: &str) {
        eprintln!("\n== {name}: skipped: {why}");
        self.took.push((name.into(), Duration::ZERO, "skipped"));
    }

    pub fn summary(&self) -> String {
        let mut out = String::from("\n== how long it took\n");
        for (name, took, said) in &self.took {
            out.push_str(&format!("{:>8.1} s  {said:7}  {name}\n", took.as_secs_f64()));
        }
        let all: Duration = self.took.iter().map(|(_, took, _)| *took).sum();
        out + &format!("{:>8.1} s  in all", all.as_secs_f64())
    }
}
