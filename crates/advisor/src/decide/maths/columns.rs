//! Measurements of one container or namespace: a column for each metric and aggregate.

use thiserror::Error;

use crate::model::measure::{Aggregate, Metric};

/// Larger values are not measurements. The bound keeps sums and products finite.
const AMOUNT_MAX: f64 = 1e150;

/// Why two slices are not a series.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SeriesError {
    #[error("a series has {times} times and {values} values")]
    Lengths { times: usize, values: usize },
    #[error("the times of a series do not ascend at sample {0}")]
    Order(usize),
}

/// Values by the end of their interval, in milliseconds since 1970, strictly ascending.
#[derive(Debug, Clone, Copy, Default)]
pub struct Series<'a> {
    end_ms: &'a [i64],
    values: &'a [f64],
}

impl<'a> Series<'a> {
    pub fn new(end_ms: &'a [i64], values: &'a [f64]) -> Result<Self, SeriesError> {
        if end_ms.len() != values.len() {
            return Err(SeriesError::Lengths { times: end_ms.len(), values: values.len() });
        }
        let ascends = end_ms.windows(2).position(|two| two[0] >= two[1]);
        match ascends {
            Some(i) => Err(SeriesError::Order(i + 1)),
            None => Ok(Self { end_ms, values }),
        }
    }

    pub fn end_ms(&self) -> &'a [i64] {
        self.end_ms
    }

    pub fn len(&self) -> usize {
        self.end_ms.len()
    }

    pub fn is_empty(&self) -> bool {
        self.end_ms.is_empty()
    }

    /// The measurement at exactly this time.
    pub fn at(&self, end_ms: i64) -> Option<f64> {
        let i = self.end_ms.binary_search(&end_ms).ok()?;
        measured(self.values[i])
    }

    /// The measurements and their times; samples that are not measurements are left out.
    pub fn samples(&self) -> impl Iterator<Item = (i64, f64)> + 'a {
        let pairs = self.end_ms.iter().zip(self.values);
        pairs.filter_map(|(at, value)| Some((*at, measured(*value)?)))
    }

    /// Writes one value for each time of `grid`, 0 where this series has none.
    pub(super) fn fill(&self, grid: &[i64], out: &mut Vec<f64>) {
        out.clear();
        if self.end_ms == grid {
            out.extend(self.values.iter().map(|value| or_zero(*value)));
            return;
        }
        let mut i = 0;
        out.extend(grid.iter().map(|at| {
            while i < self.end_ms.len() && self.end_ms[i] < *at {
                i += 1;
            }
            if i < self.end_ms.len() && self.end_ms[i] == *at {
                or_zero(self.values[i])
            } else {
                0.0
            }
        }));
    }
}

/// Nothing for NaN, infinities and absurd values: they count as missing.
fn measured(value: f64) -> Option<f64> {
    (value.abs() <= AMOUNT_MAX).then_some(value)
}

fn or_zero(value: f64) -> f64 {
    if value.abs() <= AMOUNT_MAX { value } else { 0.0 }
}

/// `a / b`, and 0 where that is not a usable number.
pub(super) fn ratio(a: f64, b: f64) -> f64 {
    or_zero(a / b)
}

/// Rounds up. On x86-64 without extensions the standard function is a call, and each bucket needs
/// three.
pub(super) fn ceil(value: f64) -> f64 {
    if value.abs() >= 4e15 {
        return value;
    }
    let whole = value as i64 as f64;
    if whole < value { whole + 1.0 } else { whole }
}

/// The columns of one container or namespace. A column that was not set is empty.
#[derive(Debug, Clone, Default)]
pub struct Columns<'a> {
    series: [[Series<'a>; Aggregate::COUNT]; Metric::COUNT],
}

impl<'a> Columns<'a> {
    pub fn set(&mut self, metric: Metric, aggregate: Aggregate, series: Series<'a>) {
        self.series[metric as usize][aggregate as usize] = series;
    }

    pub fn get(&self, metric: Metric, aggregate: Aggregate) -> Series<'a> {
        self.series[metric as usize][aggregate as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Series<'a>> {
        self.series.iter().flatten().filter(|series| !series.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_needs_ascending_times_and_a_value_for_each() {
        assert_eq!(
            Series::new(&[1, 2], &[0.0]).unwrap_err(),
            SeriesError::Lengths { times: 2, values: 1 }
        );
        assert_eq!(
            Series::new(&[1, 3, 3], &[0.0; 3]).unwrap_err().to_string(),
            "the times of a series do not ascend at sample 2"
        );
    }

    #[test]
    fn missing_samples_are_zero_and_not_measured() {
        let series = Series::new(&[10, 20, 40], &[1.0, f64::NAN, 3.0]).unwrap();
        let mut out = Vec::new();
        series.fill(&[10, 20, 30, 40, 50], &mut out);
        assert_eq!(out, [1.0, 0.0, 0.0, 3.0, 0.0]);
        series.fill(&[10, 20, 40], &mut out);
        assert_eq!(out, [1.0, 0.0, 3.0]);
        assert_eq!([series.at(10), series.at(20), series.at(30)], [Some(1.0), None, None]);
        assert_eq!(series.samples().count(), 2);
    }

    #[test]
    fn rounding_up_equals_the_standard_function() {
        let values = [0.0, 0.1, 1.0, 1.000_000_1, 2.5, 4e14 + 0.5, 4e15, 1e17, 3e150];
        for value in values.into_iter().flat_map(|value| [value, -value]) {
            assert_eq!(ceil(value), value.ceil(), "{value}");
        }
    }

    #[test]
    fn a_ratio_is_always_usable() {
        assert_eq!(ratio(6.0, 2.0), 3.0);
        for (a, b) in [(1.0, 0.0), (0.0, 0.0), (1e100, 1e-100), (f64::NAN, 1.0)] {
            assert_eq!(ratio(a, b), 0.0);
        }
    }
}
