//! What a run printed: a summary of what it did, and why it failed.

use serde_json::Value;

/// The end of a run's output.
#[derive(Debug, Default)]
pub struct Log {
    lines: std::collections::VecDeque<String>,
    bytes: usize,
}

/// The end of the output has the errors; more would only fill the memory.
const BYTES_MAX: usize = 1 << 20;

impl Log {
    pub fn push(&mut self, line: &str) {
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        while self.bytes > BYTES_MAX {
            let Some(first) = self.lines.pop_front() else { break };
            self.bytes -= first.len();
        }
    }

    /// The JSON object that the output consists of, apart from warnings around it.
    pub fn json(&self) -> Option<Value> {
        let begin = self.lines.iter().position(|line| line.starts_with('{'))?;
        let text: String = self.lines.iter().skip(begin).map(|line| format!("{line}\n")).collect();
        let mut values = serde_json::Deserializer::from_str(&text).into_iter();
        values.next()?.ok()
    }

    /// Returns a summary of a run, and its errors.
    pub fn summary(&self) -> (String, String) {
        let lines: Vec<Value> =
            self.lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of_type = |kind: &'static str| lines.iter().filter(move |line| line["type"] == kind);
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let progress = of_type("change_summary").next_back().map(|line| text(&line["@message"]));
        let errors = of_type("diagnostic").filter(|line| line["@level"] == "error").map(|line| {
            let (what, more) =
                (text(&line["diagnostic"]["summary"]), text(&line["diagnostic"]["detail"]));
            if more.is_empty() { what } else { format!("{what}: {more}") }
        });
        let mut why = errors.collect::<Vec<_>>().join("; ");
        if why.is_empty() {
            // Output that is not JSON (`init`, a crash) ends with the reason.
            let last: Vec<&str> =
                self.lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
            why = last[last.len().saturating_sub(6)..].join(" ");
        }
        (progress.unwrap_or_default(), why.chars().take(1_024).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Log {
        let mut log = Log::default();
        lines.iter().for_each(|line| log.push(line));
        log
    }

    #[test]
    fn the_reason_is_read_from_the_log_of_a_run() {
        let failed = log(&[
            r#"{"@level":"info","@message":"Plan: 1 to add","type":"change_summary"}"#,
            r#"{"@level":"error","type":"diagnostic","diagnostic":{"summary":"No","detail":"quota"}}"#,
        ]);
        assert_eq!(failed.summary(), ("Plan: 1 to add".into(), "No: quota".into()));
        assert_eq!(log(&["", "Error: no module"]).summary().1, "Error: no module");
        assert_eq!(log(&[]).summary(), Default::default());
    }

    #[test]
    fn outputs_are_found_among_warnings_and_only_the_end_of_a_log_is_kept() {
        let outputs = log(&["Warning: old", "{", r#""a": {"value": 1}"#, "}", "bye"]);
        assert_eq!(outputs.json().unwrap()["a"]["value"], 1);
        let mut long = Log::default();
        (0..50_000).for_each(|i| long.push(&format!("line {i} {}", "x".repeat(100))));
        assert!(long.bytes <= BYTES_MAX && long.summary().1.contains("line 49999"));
    }
}
