//! Recorded data: requests with their answers, and pairs of what a real Prometheus answered and what
//! the original service made of it.

use std::io::Read;

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::columns::{Columns, Series};
use advisor::decide::maths::recommend::{Options, Recommender, Workload};
use advisor::model::advice::Advice;
use advisor::model::inventory::Member;
use advisor::model::measure::{Aggregate, Metric};
use advisor::model::recommendation::Formats;
use serde_json::Value;

/// The unpacked text of a recorded file.
pub fn unpack(name: &str) -> String {
    let path = format!("{}/tests/data/{name}.gz", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// A recorded request, and what the original service answered.
pub struct Exchange {
    pub method: String,
    /// With its query.
    pub path: String,
    pub sent: Vec<(String, String)>,
    pub body: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub answer: String,
}

impl Exchange {
    pub fn read(name: &str) -> Exchange {
        let text = unpack(&format!("golden/{name}.http")).replace("\r\n", "\n");
        let (request, response) = text.split_once("\n==== response").unwrap();
        let response = response.split_once('\n').unwrap().1;
        let (line, sent, body) = message(request);
        let (status, headers, answer) = message(response);
        let mut line = line.split(' ');
        Exchange {
            method: line.next().unwrap().to_owned(),
            path: line.next().unwrap().to_owned(),
            sent,
            body: body.trim().to_owned(),
            status: status.split(' ').nth(1).unwrap().parse().unwrap(),
            headers,
            answer,
        }
    }

    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(of, _)| of.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// The answer; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.answer).unwrap_or(Value::Null)
    }
}

/// The first line, the headers and the body.
fn message(text: &str) -> (String, Vec<(String, String)>, String) {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let first = lines.next().unwrap().to_owned();
    let pair = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.to_owned()))
    };
    (first, lines.filter_map(pair).collect(), body.to_owned())
}

/// How a metric is recognised in the text of a query.
const METRICS: [(&[&str], Metric); 8] = [
    (&["resource_requests", "\"cpu\""], Metric::CpuRequest),
    (&["resource_requests", "\"memory\""], Metric::MemoryRequest),
    (&["resource_limits", "\"cpu\""], Metric::CpuLimit),
    (&["resource_limits", "\"memory\""], Metric::MemoryLimit),
    (&["cpu_usage_seconds_total:sum_irate"], Metric::CpuUsage),
    (&["cfs_throttled_seconds_total"], Metric::CpuThrottle),
    (&["working_set_bytes"], Metric::MemoryUsage),
    (&["memory_rss"], Metric::MemoryRss),
];

const AGGREGATES: [(&str, Aggregate); 4] = [
    ("sum", Aggregate::Sum),
    ("avg", Aggregate::Avg),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
];

/// One recorded column: times and values.
type Column = (Metric, Aggregate, Vec<i64>, Vec<f64>);

/// The same as it was written: seconds before the end of the window, and a number.
type Written = (Metric, Aggregate, Vec<(i64, String)>);

/// What a query measures.
pub fn metric(query: &str) -> Option<(Metric, Aggregate)> {
    let (_, metric) =
        METRICS.iter().find(|(words, _)| words.iter().all(|it| query.contains(it)))?;
    let (_, aggregate) = AGGREGATES.iter().find(|(name, _)| query.starts_with(name))?;
    Some((*metric, *aggregate))
}

fn column(query: &Value) -> Option<Column> {
    let (metric, aggregate) = self::metric(query["params"]["query"].as_str().unwrap())?;
    let samples = query["response"]["data"]["result"][0]["values"].as_array()?;
    let end_ms = |sample: &Value| (sample[0].as_f64().unwrap() * 1000.0).round() as i64;
    let value = |sample: &Value| sample[1].as_str().unwrap().parse::<f64>().unwrap();
    let times = samples.iter().map(end_ms).collect();
    Some((metric, aggregate, times, samples.iter().map(value).collect()))
}

fn written(query: &Value) -> Option<Written> {
    let (metric, aggregate) = self::metric(query["params"]["query"].as_str().unwrap())?;
    let end: jiff::Timestamp = text(&query["params"]["end"]).parse().unwrap();
    let end = end.as_second();
    let samples = query["response"]["data"]["result"][0]["values"].as_array()?;
    let sample =
        |sample: &Value| (end - sample[0].as_f64().unwrap().round() as i64, text(&sample[1]));
    Some((metric, aggregate, samples.iter().map(sample).collect()))
}

/// What was measured of one container, and the answer of the original service.
pub struct Pair {
    columns: Vec<Column>,
    /// The same as they were written: seconds before the end of the window, and a number.
    written: Vec<Written>,
    /// The element of `generateRecommendations`.
    pub expected: Value,
}

impl Pair {
    pub const NAMES: [&str; 10] = [
        "busy_ge_1core",
        "constmem",
        "idle",
        "no_usage_data",
        "nolimit",
        "stopped_1day_ago",
        "threshold_lim_near",
        "threshold_req_near",
        "threshold_request",
        "zerocpu",
    ];

    pub fn read(name: &str) -> Pair {
        let pair: Value = serde_json::from_str(&unpack(&format!("pairs/{name}.json"))).unwrap();
        let ranges = pair["queries"].as_array().unwrap().iter();
        let ranges = ranges.filter(|query| query["path"] == "/api/v1/query_range");
        let columns = ranges.clone().filter_map(column).collect();
        let written = ranges.filter_map(written).collect();
        Pair { columns, written, expected: pair["recommendation"][0].clone() }
    }

    /// What was measured: seconds before the end of the window, and a number.
    pub fn samples(&self) -> Vec<Written> {
        self.written.clone()
    }

    /// What the advisor makes of the columns that are wanted.
    pub fn advice(&self, wanted: impl Fn(Metric, Aggregate) -> bool) -> Advice {
        let mut given = Columns::default();
        for (metric, aggregate, end_ms, values) in &self.columns {
            if wanted(*metric, *aggregate) {
                given.set(*metric, *aggregate, Series::new(end_ms, values).unwrap());
            }
        }
        let workload = Workload {
            scope: Scope::Container,
            columns: given,
            formats: Formats::PROMETHEUS,
            accelerator: None,
            covered_min: None,
            runtimes: &[],
        };
        Advice {
            member: member(&self.expected["kubernetes_objects"][0]),
            experiment: text(&self.expected["experiment_name"]),
            outcome: Ok(Recommender::new(Options::default()).recommend(&workload)),
        }
    }
}

/// The container of a recorded `kubernetes_objects` element.
pub fn member(object: &Value) -> Member {
    let container = &object["containers"][0];
    Member {
        namespace: text(&object["namespace"]),
        workload: text(&object["name"]),
        workload_type: text(&object["type"]),
        container: text(&container["container_name"]),
        image: text(&container["container_image_name"]),
        pods: 1,
        shared_name: false,
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
