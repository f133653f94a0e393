//! Series in the Prometheus text format (`text/plain; version=0.0.4`), in the order and with the
//! number format of the existing service.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::series::{Series, escaped, is_name};

/// The newest value of each series, all as gauges, by name and labels.
pub fn exposition(series: &[Series]) -> String {
    // A scraper refuses the whole page if a series is on it twice.
    let mut families: BTreeMap<&str, BTreeMap<String, f64>> = BTreeMap::new();
    for one in series {
        let name = one.labels.get("__name__").filter(|name| is_name(name, true));
        let (Some(name), Some((_, value))) = (name, one.values.last()) else { continue };
        families.entry(name).or_default().insert(labels(&one.labels), *value);
    }
    let mut text = String::new();
    for (name, samples) in families {
        let _ = writeln!(text, "# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {}", number(value));
        }
    }
    text
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let known = labels.iter().filter(|(name, _)| *name != "__name__" && is_name(name, false));
    let all: Vec<String> =
        known.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

/// Formats a number as Go does: the fewest digits, an exponent from a million on and below 0.0001.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(labels: &[(&str, &str)], values: &[(i64, f64)]) -> Series {
        let labels = labels.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        Series { labels, values: values.to_vec() }
    }

    #[test]
    fn series_are_written_by_name_and_labels_with_their_newest_value() {
        let all = [
            series(&[("__name__", "z"), ("topic", "b")], &[(1, 1.0), (2, 2.5)]),
            series(&[("__name__", "z"), ("topic", "a\\b\"c\nd")], &[(1, f64::NAN)]),
            series(&[("__name__", "z"), ("topic", "b")], &[(1, 3.0)]),
            series(&[("__name__", "a:b:rate5m")], &[(1, 293_617.0)]),
            series(&[("__name__", "empty")], &[]),
            series(&[("topic", "nameless")], &[(1, 1.0)]),
        ];
        let expected = [
            "# TYPE a:b:rate5m gauge",
            "a:b:rate5m 293617",
            "# TYPE z gauge",
            "z{topic=\"a\\\\b\\\"c\\nd\"} NaN",
            "z{topic=\"b\"} 3",
            "",
        ];
        assert_eq!(exposition(&all), expected.join("\n"));
        assert_eq!(exposition(&[]), "");
    }

    #[test]
    fn numbers_are_written_as_the_existing_service_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (1_048_576.0, "1.048576e+06"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (1e21, "1e+21"),
            (5e-324, "5e-324"),
            (0.1, "0.1"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
