//! Metrics under the names of the existing operator (those of controller-runtime), for existing
//! dashboards.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{ApiCall, Durations, REQUEST_BUCKETS, add, durations};
use crate::model::ClassName;
use crate::model::class::Class;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    controller: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rest {
    code: &'static str,
    method: &'static str,
}

/// The labels of a class, in the order in which the existing operator writes them.
pub type ClassLabels = [(&'static str, String); 4];

pub fn class_labels(class: &Class) -> ClassLabels {
    [
        ("namespace", class.namespace.as_deref().unwrap_or("unknown").into()),
        ("kind_ref", snake(&class.kind)),
        ("kind", "stream_class".into()),
        ("phase", snake(&class.phase)),
    ]
}

pub struct Legacy {
    registry: Registry,
    total: Family<Result, Counter>,
    errors: Family<Controller, Counter>,
    seconds: Durations<Controller>,
    requests: Family<Rest, Counter>,
    depth: Gauge,
    classes: Family<ClassLabels, Gauge>,
}

impl Default for Legacy {
    fn default() -> Legacy {
        let mut registry = Registry::default();
        let r = &mut registry;
        let name = |part: &str| format!("controller_runtime_reconcile{part}");
        let seconds = durations(REQUEST_BUCKETS);
        Legacy {
            total: add(r, &name(""), "Reconciliations per controller", Family::default()),
            errors: add(r, &name("_errors"), "Reconciliations that failed", Family::default()),
            seconds: add(r, &name("_time_seconds"), "Duration of reconciliations", seconds),
            requests: add(r, "rest_client_requests", "Requests", Family::default()),
            depth: add(r, "workqueue_depth", "Items waiting in the work queue", Gauge::default()),
            classes: add(r, "arcane_operator_stream_class", "Classes", Family::default()),
            registry,
        }
    }
}

impl Legacy {
    pub fn api_call(&self, asked: &ApiCall) {
        let method = match asked.verb {
            "create" => "POST",
            "patch" => "PATCH",
            "update" => "PUT",
            "delete" => "DELETE",
            _ => "GET",
        };
        let code = match asked.status {
            "ok" => "200",
            "not_found" => "404",
            "exists" | "conflict" => "409",
            "forbidden" => "403",
            "invalid" => "422",
            "busy" => "429",
            _ => "<error>",
        };
        self.requests.get_or_create(&Rest { code, method }).inc();
    }

    pub fn reconciled(&self, class: &ClassName, outcome: &str, took: Duration) {
        let controller = format!("{class}-controller");
        let result = match outcome {
            "rest" => "success",
            "again" => "requeue",
            "later" => "requeue_after",
            _ => "error",
        };
        let of = Controller { controller: controller.clone() };
        if result == "error" {
            self.errors.get_or_create(&of).inc();
        }
        self.total.get_or_create(&Result { controller, result }).inc();
        self.seconds.get_or_create(&of).observe(took.as_secs_f64());
    }

    pub fn write(&self, out: &mut String, classes: &[Arc<Class>], queue: (usize, usize)) {
        self.depth.set(queue.0.try_into().unwrap_or(i64::MAX));
        self.classes.clear();
        for class in classes {
            self.classes.get_or_create(&class_labels(class)).inc();
        }
        let mut own = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut own, &self.registry);
        // The end marker follows after our own metrics.
        let _ = write!(out, "{}", own.trim_end_matches("# EOF\n"));
    }
}

/// `MicrosoftSqlServerStream` becomes `microsoft_sql_server_stream`.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut small = false;
    for c in name.chars() {
        if c.is_uppercase() && small {
            snake.push('_');
        }
        small = !c.is_uppercase();
        snake.extend(c.to_lowercase());
    }
    snake
}
