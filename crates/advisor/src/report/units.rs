//! Amounts as people write them: `250m` and `1.5` for cores, `512 MiB` for memory.

use jiff::Timestamp;

use crate::model::time;

/// Cores: thousandths below one, at most three figures.
pub fn cpu(cores: f64) -> String {
    let milli = cores.abs() * 1000.0;
    let text = if milli < 999.5 { figures(milli, 1) + "m" } else { figures(cores.abs(), 2) };
    with_sign(cores, if text == "0m" { "0".to_owned() } else { text })
}

/// Bytes, in the unit that leaves at most four digits.
pub fn memory(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut amount = bytes.abs();
    let mut unit = 0;
    while amount >= 1023.5 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let text = figures(amount, if unit == 0 { 0 } else { 2 });
    with_sign(bytes, if text == "0" { text } else { format!("{text} {}", UNITS[unit]) })
}

/// A change, which has its sign also where it is more: `+250m`.
pub fn change(amount: f64, unit: fn(f64) -> String) -> String {
    let text = unit(amount);
    if amount > 0.0 && text != unit(0.0) { format!("+{text}") } else { text }
}

/// `1 container`, `2 containers`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A time as the wire has it.
pub(super) fn time(at_ms: i64) -> String {
    Timestamp::from_millisecond(at_ms).map(time::format).unwrap_or_default()
}

/// How many bytes one unit of a memory metric is. A data source reports bytes.
pub(super) fn bytes_per(format: Option<&str>) -> f64 {
    match format {
        Some("KiB" | "Ki") => 1024.0,
        Some("MiB" | "Mi") => 1024.0 * 1024.0,
        Some("GiB" | "Gi") => 1024.0 * 1024.0 * 1024.0,
        Some("kB" | "KB") => 1e3,
        Some("MB") => 1e6,
        Some("GB") => 1e9,
        _ => 1.0,
    }
}

/// About three figures: the larger the number, the fewer decimals. Trailing zeros are cut.
fn figures(number: f64, decimals: usize) -> String {
    let decimals = if number < 9.995 {
        decimals
    } else if number < 99.95 {
        decimals.saturating_sub(1)
    } else {
        0
    };
    let text = format!("{number:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn with_sign(amount: f64, text: String) -> String {
    if amount < 0.0 && text != "0" { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_thousandths_below_one() {
        for (cores, text) in [
            (0.0, "0"),
            (0.000_02, "0"),
            (0.000_22, "0.2m"),
            (0.0095, "9.5m"),
            (0.25, "250m"),
            (0.9994, "999m"),
            (0.9996, "1"),
            (1.5, "1.5"),
            (2.936_24, "2.94"),
            (12.34, "12.3"),
            (1234.5, "1234"),
            (-0.75, "-750m"),
            (-0.000_001, "0"),
        ] {
            assert_eq!(cpu(cores), text, "{cores}");
        }
    }

    #[test]
    fn memory_is_in_binary_units() {
        for (bytes, text) in [
            (0.0, "0"),
            (100.0, "100 B"),
            (1536.0, "1.5 KiB"),
            (134_217_728.0, "128 MiB"),
            (1023.6 * 1024.0 * 1024.0, "1 GiB"),
            (1_302_025_269.6, "1.21 GiB"),
            (3.3e13, "30 TiB"),
            (1e18, "888 PiB"),
            (-134_217_728.0, "-128 MiB"),
        ] {
            assert_eq!(memory(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_change_has_a_sign_unless_it_is_nothing() {
        assert_eq!(change(0.25, cpu), "+250m");
        assert_eq!(change(-0.25, cpu), "-250m");
        assert_eq!(change(0.000_001, cpu), "0");
        assert_eq!(change(0.0, memory), "0");
    }
}
