//! What an answer becomes: columns of times and values, and the labels of each series once.

use std::fmt;
use std::ops::Range;

use super::{Text, token};

/// How much of an answer is taken before it counts as too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub series_max: usize,
    pub samples_max: usize,
    /// Bytes of the labels of all series, as they are kept.
    pub label_bytes_max: usize,
    /// Bytes of a label's name or value, and of a message.
    pub text_bytes_max: usize,
}

impl Default for Limits {
    /// A discovery of 100,000 containers; 5 million samples are 80 MB of columns.
    fn default() -> Self {
        Self {
            series_max: 200_000,
            samples_max: 5_000_000,
            label_bytes_max: 100 << 20,
            text_bytes_max: TEXT_BYTES_MAX,
        }
    }
}

impl Limits {
    /// For an answer of so many series, each of so many samples.
    pub fn of(series: usize, points: usize) -> Self {
        /// Half of that is much: queries aggregate by a few labels.
        const LABEL_BYTES_MAX: usize = 2 << 10;
        Self {
            series_max: series,
            samples_max: series.saturating_mul(points),
            label_bytes_max: series.saturating_mul(LABEL_BYTES_MAX),
            text_bytes_max: TEXT_BYTES_MAX,
        }
    }
}

const TEXT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    #[error("the answer is not one of Prometheus: expected {expected} at byte {at}")]
    Malformed { at: u64, expected: &'static str },
    #[error("the answer is not one of Prometheus: {problem}")]
    Invalid { problem: &'static str },
    #[error("the answer is cut off after {bytes} bytes")]
    Truncated { bytes: u64 },
    #[error("Prometheus reports {kind}: {message}")]
    Failed { kind: String, message: String },
    #[error("the answer has more than {max} {what}")]
    TooLarge { what: &'static str, max: usize },
    #[error("the series {labels} is in the answer twice")]
    DuplicateSeries { labels: String },
    #[error("the times of series {labels} do not increase")]
    Unordered { labels: String },
}

/// The labels of a series, by name.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(Vec<(Box<str>, Box<str>)>);

impl Labels {
    /// The value of a label. One that is absent is empty, as in PromQL.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(label, _)| &**label == name).map_or("", |(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> =
            self.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        write!(f, "{{{}}}", labels.join(", "))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A complete answer of success.
#[derive(Debug, Clone)]
pub struct Answer {
    partial: Option<String>,
    series: Vec<Series>,
    times_ms: Vec<i64>,
    values: Vec<f64>,
}

#[derive(Debug, Clone, Default)]
struct Series {
    labels: Labels,
    samples: Range<usize>,
}

impl Answer {
    /// The series in the order of the answer: labels, times in milliseconds, and values.
    pub fn series(&self) -> impl Iterator<Item = (&Labels, &[i64], &[f64])> {
        self.series.iter().map(|series| {
            let (times, values) = (&self.times_ms, &self.values);
            (&series.labels, &times[series.samples.clone()], &values[series.samples.clone()])
        })
    }

    pub fn series_count(&self) -> usize {
        self.series.len()
    }

    /// The warning that says that data is missing. Thanos and Mimir answer with what they have and
    /// warn of the rest; warnings that begin with `PromQL` are about the query.
    pub fn partial(&self) -> Option<&str> {
        self.partial.as_deref()
    }
}

/// What the allocations of a label take besides its text.
const LABEL_BYTES: usize = 64;

/// An answer in the making.
#[derive(Debug, Default)]
pub(super) struct Columns {
    status: Option<String>,
    error_type: Option<String>,
    error: Option<String>,
    result_type: Option<String>,
    has_result: bool,
    partial: Option<String>,
    label_bytes: usize,
    series: Vec<Series>,
    times_ms: Vec<i64>,
    values: Vec<f64>,
    /// Of the series that is being read.
    labels: Option<Labels>,
    label: Box<str>,
    samples_from: Option<usize>,
}

impl Columns {
    pub fn text(&mut self, text: Text, value: String) {
        let slot = match text {
            Text::Status => &mut self.status,
            Text::ErrorType => &mut self.error_type,
            Text::Error => &mut self.error,
            Text::ResultType => &mut self.result_type,
        };
        *slot = Some(value);
    }

    /// Keeps the first that is not about the query.
    pub fn warning(&mut self, text: &str) {
        if self.partial.is_none() && !text.starts_with("PromQL") {
            self.partial = Some(text.to_owned());
        }
    }

    pub fn begin_result(&mut self) -> Result<(), ScanError> {
        if std::mem::replace(&mut self.has_result, true) {
            return invalid("there are two results");
        }
        Ok(())
    }

    pub fn begin_series(&mut self, limits: &Limits) -> Result<(), ScanError> {
        if self.series.len() >= limits.series_max {
            return Err(ScanError::TooLarge { what: "series", max: limits.series_max });
        }
        (self.labels, self.samples_from) = (None, None);
        Ok(())
    }

    pub fn begin_labels(&mut self) -> Result<(), ScanError> {
        if self.labels.replace(Labels::default()).is_some() {
            return invalid("a series has two metrics");
        }
        Ok(())
    }

    pub fn label_name(&mut self, name: &str) {
        self.label = name.into();
    }

    pub fn label_value(&mut self, value: &str, limits: &Limits) -> Result<(), ScanError> {
        let name = std::mem::take(&mut self.label);
        self.label_bytes += name.len() + value.len() + LABEL_BYTES;
        if self.label_bytes > limits.label_bytes_max {
            return Err(ScanError::TooLarge {
                what: "bytes of labels",
                max: limits.label_bytes_max,
            });
        }
        self.labels.get_or_insert_default().0.push((name, value.into()));
        Ok(())
    }

    pub fn begin_samples(&mut self) -> Result<(), ScanError> {
        if self.samples_from.replace(self.values.len()).is_some() {
            return invalid("a series has two lists of samples");
        }
        Ok(())
    }

    pub fn sample(&mut self, time_ms: i64, value: f64, limits: &Limits) -> Result<(), ScanError> {
        self.times_ms.push(time_ms);
        self.values.push(value);
        self.check_size(limits)
    }

    /// Samples of the usual form; how many bytes they have.
    pub fn usual_samples(&mut self, input: &[u8], limits: &Limits) -> Result<usize, ScanError> {
        let used = token::samples(input, &mut self.times_ms, &mut self.values);
        self.check_size(limits).map(|()| used)
    }

    fn check_size(&self, limits: &Limits) -> Result<(), ScanError> {
        if self.values.len() > limits.samples_max {
            return Err(ScanError::TooLarge { what: "samples", max: limits.samples_max });
        }
        Ok(())
    }

    pub fn end_series(&mut self) -> Result<(), ScanError> {
        let Some(mut labels) = self.labels.take() else {
            return invalid("a series has no metric");
        };
        labels.0.sort_unstable();
        if labels.0.windows(2).any(|two| two[0].0 == two[1].0) {
            return invalid("a series has a label twice");
        }
        let from = self.samples_from.take().unwrap_or(self.values.len());
        if self.times_ms[from..].windows(2).any(|two| two[0] >= two[1]) {
            return Err(ScanError::Unordered { labels: labels.to_string() });
        }
        self.series.push(Series { labels, samples: from..self.values.len() });
        Ok(())
    }

    pub fn scalar(&mut self, time_ms: i64, value: f64, limits: &Limits) -> Result<(), ScanError> {
        self.sample(time_ms, value, limits)?;
        self.series.push(Series { labels: Labels::default(), samples: 0..1 });
        Ok(())
    }

    pub fn finish(mut self) -> Result<Answer, ScanError> {
        match self.status.as_deref() {
            Some("success") => {}
            Some("error") => {
                let kind = self.error_type.unwrap_or_else(|| "an error".to_owned());
                let message = self.error.unwrap_or_else(|| "it does not say which".to_owned());
                return Err(ScanError::Failed { kind, message });
            }
            _ => return invalid("it has no status"),
        }
        if !matches!(self.result_type.as_deref(), Some("matrix" | "vector" | "scalar")) {
            return invalid("its type is not matrix, vector or scalar");
        }
        let mut sorted: Vec<&Labels> = self.series.iter().map(|series| &series.labels).collect();
        sorted.sort_unstable();
        if let Some(two) = sorted.windows(2).find(|two| two[0] == two[1]) {
            return Err(ScanError::DuplicateSeries { labels: two[0].to_string() });
        }
        // All answers about a shard are kept until the last has come.
        self.times_ms.shrink_to_fit();
        self.values.shrink_to_fit();
        Ok(Answer {
            partial: self.partial,
            series: self.series,
            times_ms: self.times_ms,
            values: self.values,
        })
    }
}

fn invalid<T>(problem: &'static str) -> Result<T, ScanError> {
    Err(ScanError::Invalid { problem })
}
