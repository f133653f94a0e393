//! The two ways in: OpenMetrics text for back-fill, and the body of a remote write.

use std::io::Write;

use super::series::{History, Series};

/// The series of one metric must be neighbours.
pub fn open_metrics(
    series: &[Series],
    history: History,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let mut metric = "";
    for one in series {
        if one.metric != metric {
            metric = one.metric;
            let (family, kind) = match metric.strip_suffix("_total").filter(|_| one.is_counter()) {
                Some(family) => (family, "counter"),
                None => (metric, "gauge"),
            };
            writeln!(out, "# TYPE {family} {kind}")?;
        }
        let labels: Vec<String> =
            one.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = labels.join(",");
        for (time_s, value) in one.samples(history) {
            writeln!(out, "{metric}{{{labels}}} {value} {time_s}")?;
        }
    }
    writeln!(out, "# EOF")
}

/// A `WriteRequest`, series by series.
#[derive(Default)]
pub struct WriteRequest(Vec<u8>);

impl WriteRequest {
    pub fn add(&mut self, series: &Series, samples: impl Iterator<Item = (i64, f64)>) {
        let mut message = Vec::new();
        let mut labels = vec![("__name__", series.metric)];
        labels.extend(series.labels.iter().map(|(name, value)| (*name, value.as_str())));
        labels.sort_unstable();
        for (name, value) in labels {
            let mut label = Vec::new();
            field(&mut label, 1, name.as_bytes());
            field(&mut label, 2, value.as_bytes());
            field(&mut message, 1, &label);
        }
        for (time_s, value) in samples {
            let mut sample = vec![1 << 3 | 1];
            sample.extend(value.to_le_bytes());
            sample.push(2 << 3);
            varint(&mut sample, (time_s * 1000).unsigned_abs());
            field(&mut message, 2, &sample);
        }
        field(&mut self.0, 1, &message);
    }

    /// Compressed as far as the protocol demands: not at all, in snappy's words.
    pub fn body(&self) -> Vec<u8> {
        snappy(&self.0)
    }
}

/// Bytes of a protobuf message.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The block format, with nothing but literals: each says its length in two bytes.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    const TWO_BYTES: u8 = 61 << 2;
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 1000 + 16);
    varint(&mut out, bytes.len() as u64);
    for literal in bytes.chunks(1 << 16) {
        out.push(TWO_BYTES);
        out.extend(((literal.len() - 1) as u16).to_le_bytes());
        out.extend(literal);
    }
    out
}
