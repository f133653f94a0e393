//! Metrics of an instance. Visibility is part of the query.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use kernel::identity::Principal;
use kernel::{Error, Result};
use serde_json::{Map, Number, Value, json};

use super::instances::visible;
use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::model::error_code::ErrorCode;
use crate::model::exposition::exposition;
use crate::model::instance::Instance;
use crate::model::kind::Kind;
use crate::model::series::{Selector, Series};

const DURATION_MAX_MIN: i64 = 4_320;
const INTERVAL_MAX_S: i64 = 10_800;

/// Returns the newest values.
pub async fn query(call: Call, who: Arc<Principal>) -> Result<Response> {
    let row = visible(&call, &who).await?;
    let series = instant(&call, &row.instance, &call.queries("filters")).await?;
    let items = series.iter().filter_map(|one| {
        let (at, value) = one.values.last()?;
        let value = number(*value)?;
        Some(json!({ "metric": labels(&call.kind, one), "timestamp": at, "value": value }))
    });
    Ok(list("MetricsInstantQueryList", &row.instance.id, items.collect()))
}

/// Returns the values of the last `duration` minutes.
pub async fn query_range(call: Call, who: Arc<Principal>) -> Result<Response> {
    let text = |name: &str| call.query(name).unwrap_or_default();
    let minutes = in_range("duration", &text("duration"), DURATION_MAX_MIN)?;
    let step_s = in_range("interval", &text("interval"), INTERVAL_MAX_S)?;
    let row = visible(&call, &who).await?;
    let selector = selector(&call.kind, &row.instance, &call.queries("filters"));
    let end_s = call.fleet.ambient.now().seconds();
    let series = match (&call.fleet.ports.metrics, selector) {
        (Some(metrics), Some(selector)) => {
            let start_s = end_s - minutes * 60;
            metrics.range(&selector, start_s, end_s, step_s).await.map_err(bad_request)?
        }
        _ => Vec::new(),
    };
    let items = series.iter().map(|one| {
        let values = one
            .values
            .iter()
            .filter_map(|(at, value)| Some(json!({ "timestamp": at, "value": number(*value)? })));
        json!({ "metric": labels(&call.kind, one), "values": values.collect::<Vec<_>>() })
    });
    Ok(list("MetricsRangeQueryList", &row.instance.id, items.collect()))
}

/// Returns the newest values for the caller's own Prometheus.
pub async fn federate(call: Call, who: Arc<Principal>) -> Result<Response> {
    let row = visible(&call, &who).await?;
    let mut series = instant(&call, &row.instance, &[]).await?;
    for one in &mut series {
        one.labels.retain(|name, _| is_shown(&call.kind, name));
    }
    let text = exposition(&series);
    let mut response = Response::new(Body::from(text));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    Ok(response)
}

async fn instant(call: &Call, instance: &Instance, filters: &[String]) -> Result<Vec<Series>> {
    match (&call.fleet.ports.metrics, selector(&call.kind, instance, filters)) {
        (Some(metrics), Some(selector)) => metrics.instant(&selector).await,
        _ => Ok(Vec::new()),
    }
}

/// Returns the selector for the series of this instance, if there can be any. Filters that the kind
/// does not know are ignored.
fn selector(kind: &Kind, instance: &Instance, filters: &[String]) -> Option<Selector> {
    let metrics = kind.file.metrics.as_ref()?;
    let wanted = |name: &&String| filters.is_empty() || filters.contains(name);
    let names: Vec<String> = metrics.series.iter().filter(wanted).cloned().collect();
    let mut labels = vec![(metrics.label.clone(), instance.name.clone())];
    if metrics.namespace {
        // Two organisations may use the same name; only the namespace distinguishes their series.
        labels.push(("namespace".into(), instance.status.namespace.clone()));
    }
    if names.is_empty() || labels.iter().any(|(_, value)| value.is_empty()) {
        return None;
    }
    let without = metrics.without.iter().map(|(name, of)| (name.clone(), of.clone())).collect();
    Some(Selector { metrics: names, labels, without })
}

/// Whether a label is shown to callers. Others describe the data plane.
fn is_shown(kind: &Kind, label: &str) -> bool {
    let Some(metrics) = &kind.file.metrics else { return false };
    label == "__name__"
        || metrics.labels.is_empty()
        || label == metrics.label
        || metrics.labels.iter().any(|known| known == label)
}

fn labels(kind: &Kind, series: &Series) -> Map<String, Value> {
    let shown = series.labels.iter().filter(|(name, _)| is_shown(kind, name));
    shown.map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect()
}

/// Returns whole numbers without a decimal point, as the existing service does. JSON has only finite
/// numbers.
fn number(value: f64) -> Option<Number> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    match value {
        whole if whole.fract() == 0.0 && whole.abs() <= EXACT => Some(Number::from(whole as i64)),
        value => Number::from_f64(value),
    }
}

fn in_range(name: &str, text: &str, max: i64) -> Result<i64> {
    let number: i64 = text.parse().map_err(|_| {
        ErrorCode::BadRequest
            .error(format!("bad request, cannot parse query parameter '{name}' '{text}'"))
    })?;
    if !(1..=max).contains(&number) {
        let why = format!("bad request, query parameter '{name}' must be 1 to {max}, not {number}");
        return Err(ErrorCode::BadRequest.error(why));
    }
    Ok(number)
}

/// Maps an error about the parameters to the code of other bad parameters.
fn bad_request(error: Error) -> Error {
    match error {
        Error::Invalid { .. } => ErrorCode::BadRequest.error(format!("bad request, {error}")),
        error => error,
    }
}

/// Returns a list, without `items` if it is empty.
fn list(kind: &str, id: &str, items: Vec<Value>) -> Response {
    let mut list = json!({ "kind": kind, "id": id });
    if !items.is_empty() {
        list["items"] = Value::Array(items);
    }
    reply::json(200, &list)
}

#[cfg(test)]
mod tests {
    use kernel::Timestamp;

    use super::*;
    use crate::model::error_code::code_of;
    use crate::model::instance::{Phase, Spec, Status};

    fn kafka() -> Kind {
        Kind::read("kafka.yaml", include_str!("../../../../../kinds/kafka.yaml")).unwrap()
    }

    fn instance(namespace: &str) -> Instance {
        Instance {
            id: "k1".into(),
            kind: "kafka".into(),
            org: "acme".into(),
            owner: "alice".into(),
            name: "demo".into(),
            phase: Phase::Ready,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: Spec::default(),
            status: Status { namespace: namespace.into(), ..Status::default() },
        }
    }

    #[test]
    fn a_query_is_of_the_instance_alone_and_of_what_the_kind_knows() {
        let kind = kafka();
        let all = selector(&kind, &instance("kafka-k1"), &[]).unwrap();
        assert_eq!(all.metrics, kind.file.metrics.as_ref().unwrap().series);
        assert_eq!(
            all.labels,
            [("strimzi_io_cluster", "demo"), ("namespace", "kafka-k1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(all.without[0].0, "topic");
        let known = "kubelet_volume_stats_used_bytes";
        let some = selector(&kind, &instance("kafka-k1"), &[known.into(), "up".into()]).unwrap();
        assert_eq!(some.metrics, [known]);
        assert_eq!(selector(&kind, &instance("kafka-k1"), &["up".into()]), None);
        assert_eq!(selector(&kind, &instance(""), &[]), None, "it is nowhere yet");
    }

    #[test]
    fn durations_and_intervals_are_whole_numbers_within_their_limits() {
        let says = |text: &str| {
            let error = in_range("duration", text, 4_320).unwrap_err();
            (code_of(&error).number(), error.to_string())
        };
        assert_eq!(
            says(""),
            (21, "bad request, cannot parse query parameter 'duration' ''".into())
        );
        assert_eq!(
            says("abc"),
            (21, "bad request, cannot parse query parameter 'duration' 'abc'".into())
        );
        for text in ["0", "-1", "4321"] {
            assert_eq!(says(text).0, 21);
        }
        assert_eq!(in_range("duration", "4320", 4_320).unwrap(), 4_320);
    }

    #[test]
    fn labels_of_the_data_plane_are_not_shown() {
        let kind = kafka();
        let pairs = [
            ("__name__", "up"),
            ("strimzi_io_cluster", "demo"),
            ("topic", "t"),
            ("namespace", "n"),
            ("node", "ip-1"),
        ];
        let labels = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let shown = super::labels(&kind, &Series { labels, values: Vec::new() });
        let names: Vec<&String> = shown.keys().collect();
        assert_eq!(names, ["__name__", "strimzi_io_cluster", "topic"]);
    }

    #[test]
    fn whole_numbers_have_no_point_and_what_json_cannot_say_is_left_out() {
        let text = |value: f64| number(value).map(|number| number.to_string());
        assert_eq!(text(293_617.0).as_deref(), Some("293617"));
        assert_eq!(text(0.5).as_deref(), Some("0.5"));
        assert_eq!((text(f64::NAN), text(f64::INFINITY)), (None, None));
    }
}
