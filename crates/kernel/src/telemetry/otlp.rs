//! Exports traces to an OTLP collector, in batches and from its own thread, so that a slow collector
//! delays nothing. While it is unreachable, spans are dropped and one line is logged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};

use crate::{Error, Result};

/// The timeout of the last export when the process ends.
const FINISH: Duration = Duration::from_secs(2);

/// Starts to export spans; stop it with [`finish`].
pub(super) fn start(endpoint: &str, sample_percent: u8) -> Result<SdkTracerProvider> {
    let invalid =
        |why: String| Error::invalid("telemetry.otlp_endpoint", format!("{endpoint}: {why}"));
    url::Url::parse(endpoint).map_err(|e| invalid(e.to_string()))?;
    if sample_percent > 100 {
        return Err(Error::invalid("telemetry.otlp_sample_percent", "must be 0 to 100"));
    }
    crate::outbound::install_tls();
    let inner = Otlp::builder()
        .with_http()
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_secs(5))
        .build()
        .map_err(|e| invalid(e.to_string()))?;
    let ratio = f64::from(sample_percent) / 100.0;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(LoggingExporter { inner, failing: AtomicBool::new(false) })
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
        .with_resource(Resource::builder().with_service_name("mainstay").build())
        .build())
}

pub(super) fn finish(provider: &SdkTracerProvider) {
    if let Err(e) = provider.shutdown_with_timeout(FINISH) {
        tracing::debug!(error = %e, "exporting the last traces failed");
    }
}

/// An exporter that logs the first of several failures in a row.
#[derive(Debug)]
struct LoggingExporter {
    inner: Otlp,
    failing: AtomicBool,
}

impl SpanExporter for LoggingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        match self.inner.export(batch).await {
            Ok(()) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("trace export recovered");
                }
            }
            Err(e) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %e, "trace export failed; dropping spans");
                }
            }
        }
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_not_a_url_is_refused_by_its_field() {
        let message = start("not a url", 100).unwrap_err().to_string();
        assert!(message.starts_with("telemetry.otlp_endpoint: not a url"), "{message}");
    }
}
