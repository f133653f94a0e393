//! The filter of a bulk job: which namespaces, workloads, containers and labels it is about, and the
//! label matchers that the discovery queries get from it.
//!
//! Values are literal: a matcher carries them as they are, and the PromQL of a matcher is written in
//! one place that escapes them. Blank values are ignored; an empty list filters nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::checked::{TEXT_CHARS_MAX, bounded};
use super::fields::{Fields, Invalid, texts};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Filter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<Selector>,
}

/// One side of a filter. An absent list is not the same on the wire as an empty one, but means it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Selector {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, LabelValues>>,
}

/// The value of a label, or a list of which one must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum LabelValues {
    One(String),
    Any(Vec<String>),
}

impl LabelValues {
    pub fn values(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Any(values) => values,
        }
    }
}

/// One condition on a label of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    pub label: String,
    pub test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// The label has a value.
    Present,
    /// The label equals one of these, which are literal.
    AnyOf(Vec<String>),
    /// The label equals none of these, which are literal.
    NoneOf(Vec<String>),
}

impl Matcher {
    pub fn new(label: &str, test: Test) -> Self {
        Self { label: label.to_owned(), test }
    }
}

/// What a filter asks of the three discovery queries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matchers {
    pub namespace: Vec<Matcher>,
    pub workload: Vec<Matcher>,
    pub container: Vec<Matcher>,
    /// Labels that every series of the data source has, such as a tenant's external labels.
    pub series: Vec<Matcher>,
    /// Labels of pods, under the names that kube-state-metrics gives them.
    pub pod_labels: Vec<Matcher>,
}

impl Filter {
    pub(super) fn read(path: &str, value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new(path, value)?;
        let exclude = fields.read("exclude", Selector::read)?;
        let include = fields.read("include", Selector::read)?;
        fields.finish()?;
        Ok(Self { exclude, include })
    }

    /// The matchers of this filter. A label whose key is in `series_labels` is one that every series
    /// has; all others are labels of pods.
    pub fn matchers(&self, series_labels: &BTreeSet<String>) -> Matchers {
        type Values = fn(&Selector) -> &Option<Vec<String>>;
        let side = |selector: &Option<Selector>, values: Values| {
            let values = selector.as_ref().and_then(|selector| values(selector).clone());
            literals(values.unwrap_or_default())
        };
        let dimension = |label: &str, values: Values| {
            let mut matchers = vec![Matcher::new(label, Test::Present)];
            matchers.extend(any_of(label, side(&self.include, values)));
            matchers.extend(none_of(label, side(&self.exclude, values)));
            matchers
        };
        let mut matchers = Matchers {
            namespace: dimension("namespace", |selector| &selector.namespace),
            workload: dimension("workload", |selector| &selector.workload),
            container: dimension("container", |selector| &selector.containers),
            ..Matchers::default()
        };
        type Condition = fn(&str, Vec<String>) -> Option<Matcher>;
        let sides: [(&Option<Selector>, Condition); 2] =
            [(&self.include, any_of), (&self.exclude, none_of)];
        for (selector, condition) in sides {
            let labels = selector.as_ref().and_then(|selector| selector.labels.as_ref());
            for (key, values) in labels.into_iter().flatten() {
                let values = literals(values.values().to_vec());
                if series_labels.contains(key) {
                    matchers.series.extend(condition(&label_name(key), values));
                } else {
                    let label = format!("label_{}", sanitised(key));
                    matchers.pod_labels.extend(condition(&label, values));
                }
            }
        }
        matchers
    }

    /// The included labels, which the names of experiments may contain.
    pub fn included_labels(&self) -> BTreeMap<String, String> {
        let labels = self.include.as_ref().and_then(|selector| selector.labels.as_ref());
        let joined = |values: &LabelValues| literals(values.values().to_vec()).join(",");
        let labels =
            labels.into_iter().flatten().map(|(key, values)| (key.clone(), joined(values)));
        labels.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Whether it may leave out containers of a namespace that it lets through.
    pub fn narrows_namespaces(&self) -> bool {
        let matchers = self.matchers(&BTreeSet::new());
        matchers.workload.len() > 1
            || matchers.container.len() > 1
            || !matchers.pod_labels.is_empty()
    }
}

impl Selector {
    fn read(path: &str, value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new(path, value)?;
        let selector = Self {
            namespace: fields.read("namespace", values)?,
            workload: fields.read("workload", values)?,
            containers: fields.read("containers", values)?,
            labels: fields.read("labels", labels)?,
        };
        fields.finish()?;
        Ok(selector)
    }
}

/// Texts that can be a part of a name. They may be blank.
fn values(path: &str, value: Value) -> Result<Vec<String>, Invalid> {
    let values = texts(path, value)?;
    for (i, value) in values.iter().enumerate() {
        bounded(&format!("{path}[{i}]"), value, TEXT_CHARS_MAX)?;
    }
    Ok(values)
}

fn labels(path: &str, value: Value) -> Result<BTreeMap<String, LabelValues>, Invalid> {
    let Value::Object(labels) = value else {
        return Err(Invalid::new(path, "expected an object of labels and their values"));
    };
    let read = |(key, value): (String, Value)| {
        let path = format!("{path}.{key}");
        if key.trim().is_empty() {
            return Err(Invalid::new(path, "the key of a label must not be blank"));
        }
        bounded(&path, &key, TEXT_CHARS_MAX)?;
        let values = match value {
            Value::String(one) => {
                bounded(&path, &one, TEXT_CHARS_MAX)?;
                LabelValues::One(one)
            }
            Value::Array(_) => LabelValues::Any(values(&path, value)?),
            _ => return Err(Invalid::new(path, "expected a text or a list of texts")),
        };
        Ok((key, values))
    };
    labels.into_iter().map(read).collect()
}

/// The values without blanks and doubles, in one order whatever order they came in.
fn literals(values: Vec<String>) -> Vec<String> {
    let values = values.iter().map(|value| value.trim()).filter(|value| !value.is_empty());
    values.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

fn any_of(label: &str, values: Vec<String>) -> Option<Matcher> {
    (!values.is_empty()).then(|| Matcher::new(label, Test::AnyOf(values)))
}

fn none_of(label: &str, values: Vec<String>) -> Option<Matcher> {
    (!values.is_empty()).then(|| Matcher::new(label, Test::NoneOf(values)))
}

/// The key of a Kubernetes label as kube-state-metrics writes it: `app.kubernetes.io/name` becomes
/// `app_kubernetes_io_name`.
fn sanitised(key: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    key.trim().chars().map(safe).collect()
}

/// A valid label name of Prometheus, which does not begin with a digit.
fn label_name(key: &str) -> String {
    let name = sanitised(key);
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filter(value: Value) -> Filter {
        Filter::read("filter", value).unwrap()
    }

    fn any(label: &str, values: &[&str]) -> Matcher {
        let values = values.iter().map(|value| value.to_string()).collect();
        Matcher::new(label, Test::AnyOf(values))
    }

    fn none(label: &str, values: &[&str]) -> Matcher {
        let values = values.iter().map(|value| value.to_string()).collect();
        Matcher::new(label, Test::NoneOf(values))
    }

    #[test]
    fn each_dimension_filters_its_own_query() {
        let matchers = filter(json!({
            "include": { "namespace": [" b ", "a", "b", ""], "containers": ["c"] },
            "exclude": { "namespace": ["x"], "workload": ["w"] },
        }))
        .matchers(&BTreeSet::new());
        let present = |label| Matcher::new(label, Test::Present);
        let namespace =
            [present("namespace"), any("namespace", &["a", "b"]), none("namespace", &["x"])];
        assert_eq!(matchers.namespace, namespace);
        assert_eq!(matchers.workload, [present("workload"), none("workload", &["w"])]);
        assert_eq!(matchers.container, [present("container"), any("container", &["c"])]);
    }

    #[test]
    fn an_empty_filter_filters_nothing() {
        for empty in [
            json!({}),
            json!({ "include": {}, "exclude": null }),
            json!({ "include": { "namespace": [], "labels": {} }, "exclude": { "workload": [" "] } }),
        ] {
            let filter = filter(empty);
            assert_eq!(
                filter.matchers(&BTreeSet::new()),
                Filter::default().matchers(&BTreeSet::new())
            );
            assert!(!filter.narrows_namespaces());
        }
    }

    #[test]
    fn a_label_of_pods_is_named_as_kube_state_metrics_names_it() {
        let filter = filter(json!({
            "include": { "labels": { "app.kubernetes.io/part-of": ["shop", "till"], "org_id": "7" } },
            "exclude": { "labels": { "tier": "test" } },
        }));
        let matchers = filter.matchers(&BTreeSet::from(["org_id".to_owned()]));
        assert_eq!(matchers.series, [any("org_id", &["7"])]);
        assert_eq!(
            matchers.pod_labels,
            [
                any("label_app_kubernetes_io_part_of", &["shop", "till"]),
                none("label_tier", &["test"])
            ]
        );
        assert!(filter.narrows_namespaces());
        assert_eq!(filter.included_labels()["app.kubernetes.io/part-of"], "shop,till");
    }

    #[test]
    fn an_error_names_the_field() {
        for (value, message) in [
            (json!([]), "`filter`: expected an object, found a list"),
            (
                json!({ "include": { "namespace": "a" } }),
                "`filter.include.namespace`: expected a list of texts, found a text",
            ),
            (
                json!({ "exclude": { "workload": ["a", {}] } }),
                "`filter.exclude.workload[1]`: expected a text, found an object",
            ),
            (
                json!({ "include": { "labels": { "app": 1 } } }),
                "`filter.include.labels.app`: expected a text or a list of texts",
            ),
            (
                json!({ "include": { "pods": [] } }),
                "`filter.include.pods`: unknown field; the known ones are namespace, workload, containers, labels",
            ),
        ] {
            assert_eq!(Filter::read("filter", value).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn it_is_echoed_as_it_came() {
        let sent = json!({
            "exclude": {},
            "include": { "namespace": ["b", "a"], "labels": { "app": "x", "tier": ["y"] } },
        });
        assert_eq!(serde_json::to_value(filter(sent.clone())).unwrap(), sent);
    }
}
