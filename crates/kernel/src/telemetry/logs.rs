//! Sets up logs (stderr, text or JSON) and traces (OTLP).

use std::io::IsTerminal as _;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use super::otlp;
use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `info`, or directives such as `info,kernel::store=debug`.
    pub level: String,
    pub format: Format,
    /// The OTLP endpoint for traces (over HTTP), as in `http://localhost:4318/v1/traces`.
    /// Empty: traces are not exported.
    pub otlp_endpoint: String,
    /// The percentage of traces that is exported, from 0 to 100.
    pub otlp_sample_percent: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Human,
    Json,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            level: "info".into(),
            format: Format::Human,
            otlp_endpoint: String::new(),
            otlp_sample_percent: 100,
        }
    }
}

/// Flushes traces when dropped, so keep it until the end of `main`.
#[must_use = "traces stop being exported when this is dropped"]
pub struct Guard(Option<SdkTracerProvider>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = &self.0 {
            otlp::finish(provider);
        }
    }
}

/// Libraries that warn of what is reported anyway.
const QUIET: &str = "krafka=error";

/// Starts logging and, if configured, tracing. A second call in one process (as in tests) does not
/// change the logs.
pub fn init(config: &Config) -> Result<Guard> {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", config.level)).map_err(|e| {
        Error::invalid("telemetry.level", format!("is not a level such as `info` ({e})"))
    })?;
    let stderr = match config.format {
        Format::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr)
            .boxed(),
        Format::Human => tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .boxed(),
    };
    let provider = match config.otlp_endpoint.as_str() {
        "" => None,
        endpoint => Some(otlp::start(endpoint, config.otlp_sample_percent)?),
    };
    // Spans have the level `debug`: without an exporter they cost nothing, and logs name the
    // request where it matters.
    let traces = provider.as_ref().map(|provider| {
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("mainstay"));
        layer.with_filter(LevelFilter::DEBUG)
    });
    // Fails only if this process logs already.
    let stderr = stderr.with_filter(filter);
    let _ = tracing_subscriber::registry().with(stderr).with(traces).try_init();
    Ok(Guard(provider))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_is_refused_by_its_field() {
        let config = Config { level: "info,[[".into(), ..Config::default() };
        let message = init(&config).err().expect("refused").to_string();
        assert!(message.starts_with("telemetry.level: "), "{message}");
    }

    #[test]
    fn starting_twice_is_harmless() {
        let config = Config { level: "error".into(), ..Config::default() };
        let first = init(&config).unwrap();
        let second = init(&Config { format: Format::Json, ..config }).unwrap();
        drop((first, second));
    }
}
