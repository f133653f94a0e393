//! Reads the metrics of instances from a Prometheus, for callers who may see them.
//!
//! The permission is part of the query, and a query is a [`Selector`], never a text: the only input of
//! a caller that becomes PromQL is the name of a metric, which is checked, and the value of a label,
//! which is quoted.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use kernel::outbound::{self, Outbound, Target, Tls};
use kernel::secret::{SecretSource, SecretValue};
use kernel::{Error, Result};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::model::series::{Selector, Series, escaped, is_name};
use crate::ports::http::{base_url, below};

pub const SYSTEM: &str = "Prometheus";
/// Of a response: some hundred series with as many points as one query may have.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Prometheus refuses more for each series.
const POINTS_MAX: i64 = 11_000;

#[async_trait]
pub trait Metrics: Send + Sync + 'static {
    /// The newest value of each series.
    async fn instant(&self, selector: &Selector) -> Result<Vec<Series>>;
    /// Values at every step from start to end, both in seconds since 1970.
    async fn range(
        &self,
        selector: &Selector,
        start_s: i64,
        end_s: i64,
        step_s: i64,
    ) -> Result<Vec<Series>>;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Up to, not including, `/api/v1`. Empty: disabled.
    pub url: String,
    /// Empty: none is sent.
    pub token: SecretSource,
    pub timeout_s: u64,
    pub tls: Tls,
}

impl Default for Config {
    fn default() -> Config {
        let (url, token, tls) = Default::default();
        Config { url, token, timeout_s: 60, tls }
    }
}

impl Config {
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }
}

pub struct Prometheus {
    target: Target,
    base: Url,
    token: SecretValue,
    timeout_s: u64,
}

#[derive(Deserialize)]
struct QueryResponse {
    #[serde(default)]
    data: Data,
    #[serde(default)]
    error: String,
}

#[derive(Default, Deserialize)]
struct Data {
    result: Vec<SeriesResult>,
}

#[derive(Deserialize)]
struct SeriesResult {
    metric: BTreeMap<String, String>,
    /// Of an instant query.
    value: Option<(f64, String)>,
    /// Of a range query.
    #[serde(default)]
    values: Vec<(f64, String)>,
}

impl Prometheus {
    pub fn new(config: &Config, outbound: &Outbound) -> Result<Prometheus> {
        let base = base_url("fleet.prometheus.url", &config.url, "https://host:9090")?;
        let timeout = Duration::from_secs(config.timeout_s);
        let tls = outbound.tls("fleet.prometheus.tls", &config.tls)?;
        Ok(Prometheus {
            target: outbound.target(SYSTEM).with_timeout(timeout).with_tls(tls),
            base,
            token: outbound.secret("fleet.prometheus.token", &config.token)?,
            timeout_s: config.timeout_s,
        })
    }

    async fn query(
        &self,
        operation: &str,
        selector: &Selector,
        mut form: Vec<(&str, String)>,
    ) -> Result<Vec<Series>> {
        if selector.metrics.is_empty() {
            return Ok(Vec::new());
        }
        form.push(("query", promql(selector)?));
        form.push(("timeout", format!("{}s", self.timeout_s)));
        let url = below(&self.base, ["api", "v1", operation]);
        // Read-only, so it may be retried. A POST, because the length of URLs is limited.
        let mut request = self.target.request(Method::POST, url).form(&form);
        request = request.header("idempotency-key", "query");
        let token = self.token.current()?;
        if !token.expose().is_empty() {
            request = request.bearer_auth(token.expose());
        }
        let response = self.target.http(operation, request).await?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            let why = format!("it returned {status}; check fleet.prometheus.token");
            return Err(Error::unavailable(SYSTEM, why));
        }
        let body = outbound::body(response, BODY_BYTES_MAX).await?;
        let response: QueryResponse = serde_json::from_slice(&body).map_err(|e| {
            let why = format!(
                "it returned {status} and an unexpected body ({e}); check fleet.prometheus.url"
            );
            Error::unavailable(SYSTEM, why)
        })?;
        if !status.is_success() {
            return Err(Error::unavailable(SYSTEM, format!("{status}: {}", response.error)));
        }
        response.data.result.into_iter().map(SeriesResult::series).collect()
    }
}

#[async_trait]
impl Metrics for Prometheus {
    async fn instant(&self, selector: &Selector) -> Result<Vec<Series>> {
        self.query("query", selector, Vec::new()).await
    }

    async fn range(
        &self,
        selector: &Selector,
        start_s: i64,
        end_s: i64,
        step_s: i64,
    ) -> Result<Vec<Series>> {
        if step_s < 1 || end_s < start_s {
            return Err(Error::invalid(
                "interval",
                "must be at least a second, and a duration too",
            ));
        }
        if (end_s - start_s) / step_s >= POINTS_MAX {
            let least_s = (end_s - start_s) / (POINTS_MAX - 1) + 1;
            let why =
                format!("gives more than {POINTS_MAX} points; use at least {least_s} seconds");
            return Err(Error::invalid("interval", why));
        }
        let form = vec![
            ("start", start_s.to_string()),
            ("end", end_s.to_string()),
            ("step", step_s.to_string()),
        ];
        self.query("query_range", selector, form).await
    }
}

impl SeriesResult {
    fn series(self) -> Result<Series> {
        let sample = |(time_s, value): (f64, String)| {
            let value = value.parse().map_err(|_| {
                Error::unavailable(SYSTEM, format!("it returned `{value}` as a number"))
            })?;
            Ok(((time_s * 1000.0).round() as i64, value))
        };
        let all = self.value.into_iter().chain(self.values);
        Ok(Series { labels: self.metric, values: all.map(sample).collect::<Result<_>>()? })
    }
}

/// Renders a selector as PromQL, only here.
fn promql(selector: &Selector) -> Result<String> {
    let mut parts = Vec::new();
    for name in &selector.metrics {
        if !is_name(name, true) {
            return Err(Error::invalid("filters", format!("`{name}` is not the name of a metric")));
        }
    }
    // A valid name has no special character of regular expressions, and Prometheus anchors at both
    // ends.
    parts.push(match selector.metrics.as_slice() {
        [one] => format!("__name__=\"{one}\""),
        several => format!("__name__=~\"{}\"", several.join("|")),
    });
    if selector.labels.is_empty() {
        return Err(bad_selector("it would read the series of all instances"));
    }
    for (name, value) in &selector.labels {
        if value.is_empty() {
            // Prometheus takes an empty value for every series without the label.
            return Err(bad_selector("a label without a value"));
        }
        parts.push(matcher(name, "=", value)?);
    }
    for (name, pattern) in &selector.without {
        parts.push(matcher(name, "!~", pattern)?);
    }
    Ok(format!("{{{}}}", parts.join(",")))
}

fn matcher(name: &str, operator: &str, value: &str) -> Result<String> {
    if !is_name(name, false) || name == "__name__" {
        return Err(bad_selector(&format!("`{name}` is not a label")));
    }
    Ok(format!("{name}{operator}\"{}\"", escaped(value)))
}

fn bad_selector(why: &str) -> Error {
    Error::internal("a selector of metrics", why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(metrics: &[&str], labels: &[(&str, &str)]) -> Selector {
        Selector {
            metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
            labels: labels.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            without: Vec::new(),
        }
    }

    #[test]
    fn a_selector_becomes_promql_with_everything_quoted() {
        let mut all = selector(&["up", "a:b"], &[("id", "x\"} or {a=\"\\\n")]);
        all.without.push(("topic".into(), "__redhat_.*|a\\.b".into()));
        assert_eq!(
            promql(&all).unwrap(),
            r#"{__name__=~"up|a:b",id="x\"} or {a=\"\\\n",topic!~"__redhat_.*|a\\.b"}"#
        );
        let one = selector(&["up"], &[("id", "x")]);
        assert_eq!(promql(&one).unwrap(), r#"{__name__="up",id="x"}"#);
    }

    #[test]
    fn invalid_names_and_too_broad_selectors_are_refused() {
        for metric in ["", "a b", "a{", "a\"", "1a", "a|b", ".*", "ä", "a\n"] {
            let bad = selector(&[metric], &[("id", "x")]);
            let error = promql(&bad).unwrap_err();
            assert!(
                matches!(&error, Error::Invalid { field, .. } if field == "filters"),
                "{metric}"
            );
        }
        for labels in [
            &[][..],
            &[("id", "")][..],
            &[("a:b", "x")][..],
            &[("__name__", "x")][..],
            &[("id=\"y\",id", "x")][..],
        ] {
            assert!(promql(&selector(&["up"], labels)).is_err(), "{labels:?}");
        }
    }
}
