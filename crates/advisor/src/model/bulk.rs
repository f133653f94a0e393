//! The request of a bulk job. It accepts what the existing service accepts, what its documents say it
//! accepts, and what Mainstay adds; it is echoed as it was sent, with the defaults filled in.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{Fields, Invalid, text, texts};
use super::filter::Filter;
use super::time::TimeRange;

const DATASOURCE: &str = "prometheus-1";
const METADATA_PROFILE: &str = "cluster-metadata-local-monitoring";
const MEASUREMENT_DURATION: &str = "15min";
/// The measurement duration becomes the range of a query: no longer than what recommendations read.
const MEASUREMENT_MINUTES_MAX: u32 = 15 * 24 * 60;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct BulkRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_range: Option<TimeRange>,
    pub datasource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    pub metadata_profile: String,
    pub measurement_duration: MeasurementDuration,
    #[serde(rename = "requestId", skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment_types: Option<BTreeSet<ExperimentType>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Webhook {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExperimentType {
    Container,
    Namespace,
}

/// How long one measurement is, as it was sent: `15min`, `15mins` and `15` are all 15 minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct MeasurementDuration(String);

impl Default for BulkRequest {
    fn default() -> Self {
        Self {
            filter: None,
            time_range: None,
            datasource: DATASOURCE.to_owned(),
            webhook: None,
            metadata_profile: METADATA_PROFILE.to_owned(),
            measurement_duration: MeasurementDuration(MEASUREMENT_DURATION.to_owned()),
            request_id: None,
            experiment_types: None,
        }
    }
}

impl BulkRequest {
    /// Reads the body of a request.
    pub fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| Invalid::new("", format!("the body is not JSON: {error}")))?;
        Self::try_from(value)
    }

    /// The types of experiments that are meant: containers, if nothing was said.
    pub fn types(&self) -> BTreeSet<ExperimentType> {
        let types = self.experiment_types.clone().unwrap_or_default();
        if types.is_empty() { BTreeSet::from([ExperimentType::Container]) } else { types }
    }

    /// Where to report the end of the job.
    pub fn webhook_url(&self) -> Option<&str> {
        let url = self.webhook.as_ref()?.url.as_deref()?.trim();
        (!url.is_empty()).then_some(url)
    }
}

impl TryFrom<Value> for BulkRequest {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        let defaults = Self::default();
        let mut fields = Fields::new("", value)?;
        let types = fields.read("experiment_types", ExperimentType::read_many)?;
        let one = fields.read("experiment_type", ExperimentType::read)?;
        let id = fields.read("requestId", text)?;
        let request = Self {
            filter: fields.read("filter", Filter::read)?,
            time_range: fields.read("time_range", TimeRange::read)?,
            datasource: fields.read("datasource", text)?.unwrap_or(defaults.datasource),
            webhook: fields.read("webhook", Webhook::read)?,
            metadata_profile: fields
                .read("metadata_profile", text)?
                .unwrap_or(defaults.metadata_profile),
            measurement_duration: fields
                .read("measurement_duration", MeasurementDuration::read)?
                .unwrap_or(defaults.measurement_duration),
            request_id: id.or(fields.read("request_id", text)?),
            experiment_types: match (types, one) {
                (None, None) => None,
                (types, one) => Some(types.into_iter().flatten().chain(one).collect()),
            },
        };
        fields.finish()?;
        Ok(request)
    }
}

impl Webhook {
    fn read(path: &str, value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new(path, value)?;
        let url = fields.read("url", text)?;
        fields.finish()?;
        Ok(Self { url })
    }
}

impl ExperimentType {
    fn read(path: &str, value: Value) -> Result<Self, Invalid> {
        let name = text(path, value)?;
        match name.trim().to_ascii_lowercase().as_str() {
            "container" => Ok(Self::Container),
            "namespace" => Ok(Self::Namespace),
            _ => Err(Invalid::new(path, format!("expected container or namespace, found {name}"))),
        }
    }

    fn read_many(path: &str, value: Value) -> Result<BTreeSet<Self>, Invalid> {
        let names = texts(path, value)?.into_iter().enumerate();
        names.map(|(i, name)| Self::read(&format!("{path}[{i}]"), Value::String(name))).collect()
    }
}

impl MeasurementDuration {
    fn read(path: &str, value: Value) -> Result<Self, Invalid> {
        let duration = Self(text(path, value)?);
        let minutes = duration.number().filter(|minutes| *minutes > 0);
        if minutes.is_some_and(|minutes| minutes <= MEASUREMENT_MINUTES_MAX) {
            Ok(duration)
        } else {
            let problem = format!(
                "expected minutes from 1 to {MEASUREMENT_MINUTES_MAX}, such as 15min, found {}",
                duration.0
            );
            Err(Invalid::new(path, problem))
        }
    }

    pub fn minutes(&self) -> u32 {
        self.number().expect("it was checked when it was read")
    }

    /// What the digits say, as the existing service reads them: all others are left out.
    fn number(&self) -> Option<u32> {
        let digits: String = self.0.chars().filter(char::is_ascii_digit).collect();
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> BulkRequest {
        BulkRequest::parse(value.to_string().as_bytes()).unwrap()
    }

    fn error(body: &str) -> String {
        BulkRequest::parse(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_request_is_one_for_everything() {
        let request = parse(json!({}));
        assert_eq!(request, BulkRequest::default());
        assert_eq!(request.measurement_duration.minutes(), 15);
        assert_eq!(request.types(), BTreeSet::from([ExperimentType::Container]));
        let echo = r#"{"datasource":"prometheus-1","metadata_profile":"cluster-metadata-local-monitoring","measurement_duration":"15min"}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), echo);
    }

    #[test]
    fn a_request_is_echoed_in_the_order_of_the_existing_service() {
        let request = parse(json!({
            "filter": { "include": { "namespace": ["does-not-exist"] }, "exclude": {} },
            "time_range": {}, "webhook": { "url": "http://127.0.0.1:9/" }, "requestId": "abc",
        }));
        let echo = r#"{"filter":{"exclude":{},"include":{"namespace":["does-not-exist"]}},"time_range":{},"datasource":"prometheus-1","webhook":{"url":"http://127.0.0.1:9/"},"metadata_profile":"cluster-metadata-local-monitoring","measurement_duration":"15min","requestId":"abc"}"#;
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, echo);
        assert_eq!(serde_json::from_str::<BulkRequest>(&text).unwrap(), request);
        assert_eq!(request.webhook_url(), Some("http://127.0.0.1:9/"));
    }

    #[test]
    fn more_is_accepted_than_by_the_existing_service() {
        let request = parse(json!({
            "experiment_types": ["Container", "namespace"], "experiment_type": "container",
            "request_id": 7, "measurement_duration": 30, "filter": null, "webhook": {},
        }));
        assert_eq!(request.types().len(), 2);
        assert_eq!(request.request_id.as_deref(), Some("7"));
        assert_eq!(request.measurement_duration.minutes(), 30);
        assert_eq!((request.filter, request.webhook), (None, Some(Webhook { url: None })));
        assert_eq!(
            parse(json!({ "measurement_duration": "15mins" })).measurement_duration.minutes(),
            15
        );
    }

    #[test]
    fn an_error_names_the_field() {
        assert_eq!(error("[]"), "expected an object, found a list");
        assert!(error("{bad").starts_with("the body is not JSON: "));
        assert!(error("").starts_with("the body is not JSON: "));
        assert!(error(r#"{"measurement_duration":"abc"}"#).starts_with("`measurement_duration`: "));
        assert!(
            error(r#"{"measurement_duration":"0min"}"#).starts_with("`measurement_duration`: ")
        );
        assert!(error(r#"{"experiment_types":["pod"]}"#).starts_with("`experiment_types[0]`: "));
        assert!(error(r#"{"webhook":{"uri":"x"}}"#).starts_with("`webhook.uri`: unknown field"));
        assert!(error(r#"{"datasrc":"x"}"#).starts_with("`datasrc`: unknown field"));
    }
}
