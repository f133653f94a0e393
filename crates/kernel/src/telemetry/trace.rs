//! W3C trace context.

use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use serde::{Deserialize, Serialize};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::Ambient;

tokio::task_local! {
    static CURRENT: Trace;
}

/// A position in a trace: the content of a `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Trace {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
}

impl Trace {
    /// Starts a new trace.
    pub fn new(ambient: &Ambient) -> Trace {
        let random: [u8; 24] = ambient.random_bytes();
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        trace_id.copy_from_slice(&random[..16]);
        span_id.copy_from_slice(&random[16..]);
        Trace { trace_id, span_id, flags: 1 }
    }

    /// A new span in the same trace.
    pub fn child(self, ambient: &Ambient) -> Trace {
        Trace { span_id: ambient.random_bytes(), ..self }
    }

    /// Parses a `traceparent`; `None` if invalid, which the standard says to ignore.
    pub fn parse(text: &str) -> Option<Trace> {
        let mut parts = text.split('-');
        let (version, trace_id, span_id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let later_version = version != "00" && version != "ff";
        if (version != "00" && !later_version) || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let [_] = hex::<1>(version)?;
        let trace = Trace {
            trace_id: hex(trace_id)?,
            span_id: hex(span_id)?,
            flags: hex::<1>(flags)?[0] & 1,
        };
        (trace.trace_id != [0; 16] && trace.span_id != [0; 8]).then_some(trace)
    }

    /// The `traceparent` form.
    pub fn text(&self) -> [u8; 55] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        for (begin, bytes) in [(3, &self.trace_id[..]), (36, &self.span_id), (53, &[self.flags])] {
            for (pair, byte) in text[begin..].chunks_exact_mut(2).zip(bytes) {
                pair[0] = DIGITS[usize::from(byte >> 4)];
                pair[1] = DIGITS[usize::from(byte & 15)];
            }
        }
        text
    }

    /// The position of a tracing span, if traces are exported.
    pub fn of_span(span: &tracing::Span) -> Option<Trace> {
        if span.is_disabled() {
            return None;
        }
        let context = span.context();
        let span = context.span();
        let span = span.span_context();
        span.is_valid().then(|| Trace {
            trace_id: span.trace_id().to_bytes(),
            span_id: span.span_id().to_bytes(),
            flags: span.trace_flags().to_u8(),
        })
    }

    /// Makes `span` a child of this position.
    pub fn adopt(self, span: &tracing::Span) {
        let remote = SpanContext::new(
            TraceId::from_bytes(self.trace_id),
            SpanId::from_bytes(self.span_id),
            TraceFlags::new(self.flags),
            true,
            TraceState::default(),
        );
        let context = opentelemetry::Context::new().with_remote_span_context(remote);
        // Fails only without an exporter, and then there is nothing to adopt.
        let _ = span.set_parent(context);
    }
}

impl std::fmt::Display for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).expect("it is ASCII"))
    }
}

impl TryFrom<String> for Trace {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Trace, &'static str> {
        Trace::parse(&text).ok_or("must be a W3C traceparent")
    }
}

impl From<Trace> for String {
    fn from(trace: Trace) -> String {
        trace.to_string()
    }
}

/// Exactly `2 * N` lower-case digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Runs `work` within this trace.
pub async fn with_trace<F: Future>(trace: Trace, work: F) -> F::Output {
    CURRENT.scope(trace, work).await
}

/// The `traceparent` to send with a call to another system: of the current span, else of the
/// current request.
pub fn current_traceparent() -> Option<String> {
    let trace = Trace::of_span(&tracing::Span::current())
        .or_else(|| CURRENT.try_with(|trace| *trace).ok())?;
    Some(trace.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_written_as_it_was_read() {
        assert_eq!(Trace::parse(GOOD).unwrap().to_string(), GOOD);
        let later = Trace::parse(&GOOD.replacen("00", "cc", 1)).unwrap();
        assert_eq!(later.to_string(), GOOD, "a later version is read as far as we know it");
    }

    #[test]
    fn what_is_not_a_traceparent_is_ignored() {
        for bad in [
            "",
            "00",
            "00-0-0-0",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "zz-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Trace::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn work_knows_the_trace_that_it_belongs_to() {
        let ambient = Ambient::seeded(|| Timestamp(0), 7);
        let trace = Trace::new(&ambient);
        assert_eq!(current_traceparent(), None);
        let inside = with_trace(trace, async { current_traceparent() }).await;
        assert_eq!(inside, Some(trace.to_string()));
        let child = trace.child(&ambient);
        assert_eq!(child.trace_id, trace.trace_id);
        assert_ne!(child.span_id, trace.span_id);
    }
}
