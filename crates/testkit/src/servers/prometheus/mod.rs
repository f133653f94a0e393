//! Prometheus, and a loader: from the description of a [`Cluster`] it writes the metrics that the
//! advisor reads, either as fifteen days of history into one of the test's own before it starts,
//! or quickly over remote write into the shared one, in namespaces of the test's own.

pub mod cluster;
pub mod series;
mod write;

use std::io::BufWriter;
use std::process::Command;

use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;

use super::{Instance, blocking, http, unique};
pub use cluster::Cluster;
pub use series::{History, Series};
use write::WriteRequest;

/// In one request.
const SERIES_MAX: usize = 500;

pub struct Prometheus {
    pub server: Instance,
    prefix: String,
}

/// The shared one; `None` skips the test.
pub fn prometheus() -> Option<Prometheus> {
    Instance::shared("prometheus").map(Prometheus::of)
}

impl Prometheus {
    fn of(server: Instance) -> Prometheus {
        Prometheus { server, prefix: unique() }
    }

    pub async fn private(&self) -> Prometheus {
        Prometheus::of(self.server.private(&[]).await)
    }

    /// One of the test's own that has a history when it starts.
    pub async fn private_with(&self, cluster: &Cluster, history: History) -> Prometheus {
        let series = cluster.series();
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().to_owned();
        blocking(move || {
            let text = path.join("metrics.txt");
            let mut file = BufWriter::new(std::fs::File::create(&text)?);
            write::open_metrics(&series, history, &mut file)?;
            drop(file);
            let mut promtool = Command::new("promtool");
            // One block instead of one for every two hours, which takes a hundred times as long.
            promtool.args(["tsdb", "create-blocks-from", "openmetrics"]);
            let output =
                promtool.arg("--max-block-duration=600h").arg(&text).arg(path.join("data"));
            let output = output.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(output.status.success(), "promtool failed: {said}");
            Ok(())
        })
        .await;
        let blocks = dir.path().join("data").display().to_string();
        Prometheus::of(self.server.private(&[("blocks", &blocks)]).await)
    }

    /// A name that no other test uses, for a namespace.
    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Loads over remote write. On the shared server, give namespaces names of this test's own.
    pub async fn write(&self, cluster: &Cluster, history: History) {
        // A request stays in the order of megabytes.
        for some in cluster.series().chunks(20) {
            let mut request = WriteRequest::default();
            some.iter().for_each(|series| request.add(series, series.samples(history)));
            self.send(&request).await;
        }
    }

    async fn send(&self, request: &WriteRequest) {
        let url = format!("{}/api/v1/write", self.server.get(""));
        let post = http::client()
            .post(url)
            .header("Content-Type", "application/x-protobuf")
            .header("Content-Encoding", "snappy")
            .header("X-Prometheus-Remote-Write-Version", "0.1.0");
        http::answer(post.body(request.body())).await;
    }

    /// One of the test's own that is empty and measures nothing, for [`Prometheus::write_in_order`].
    pub async fn private_of_the_past(&self) -> Prometheus {
        Prometheus::of(self.server.private(&[("past", "yes")]).await)
    }

    /// Loads much over remote write, in the order of time, `slice_s` of history after the other: for a
    /// server that has nothing newer. Calls `loaded` with the end of each slice.
    pub async fn write_in_order(
        &self,
        cluster: &Cluster,
        history: History,
        slice_s: i64,
        mut loaded: impl FnMut(i64),
    ) {
        let series = cluster.series();
        let mut left: Vec<_> = series.iter().map(|one| one.samples(history).peekable()).collect();
        let mut until_s = history.end_s - history.length_s;
        while until_s < history.end_s {
            until_s = history.end_s.min(until_s + slice_s);
            for (series, left) in series.chunks(SERIES_MAX).zip(left.chunks_mut(SERIES_MAX)) {
                let mut request = WriteRequest::default();
                for (series, samples) in series.iter().zip(left) {
                    let slice = std::iter::from_fn(|| samples.next_if(|(at, _)| *at <= until_s));
                    request.add(series, slice);
                }
                self.send(&request).await;
            }
            loaded(until_s);
        }
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        http::client().get(format!("{}/api/v1/{path}", self.server.get(""))).query(query)
    }

    /// The series of an instant query: labels and value.
    pub async fn query(&self, promql: &str, time_s: i64) -> Vec<(Value, f64)> {
        let request = self.get("query", &[("query", promql), ("time", &time_s.to_string())]);
        let found = series_of(http::answer(request).await);
        found.into_iter().map(|(labels, one)| (labels, sample(&one["value"]).1)).collect()
    }

    /// The series of a range query: labels, and times in seconds with values.
    pub async fn query_range(
        &self,
        promql: &str,
        (start_s, end_s): (i64, i64),
        step_s: i64,
    ) -> Vec<(Value, Vec<(i64, f64)>)> {
        let (status, body) = self.try_query_range(promql, (start_s, end_s), step_s).await;
        assert!(status.is_success(), "{status}: {body}");
        let samples =
            |one: &Value| one["values"].as_array().expect("samples").iter().map(sample).collect();
        series_of(body).into_iter().map(|(labels, one)| (labels, samples(&one))).collect()
    }

    /// Whatever it says to a range query.
    pub async fn try_query_range(
        &self,
        promql: &str,
        (start_s, end_s): (i64, i64),
        step_s: i64,
    ) -> (StatusCode, Value) {
        let [start, end, step] = [start_s, end_s, step_s].map(|number| number.to_string());
        let query = [("query", promql), ("start", &start), ("end", &end), ("step", &step)];
        http::try_answer(self.get("query_range", &query)).await
    }
}

fn series_of(mut body: Value) -> Vec<(Value, Value)> {
    let Value::Array(found) = body["data"]["result"].take() else { panic!("no result: {body}") };
    found.into_iter().map(|mut one| (one["metric"].take(), one)).collect()
}

fn sample(pair: &Value) -> (i64, f64) {
    let time = pair[0].as_f64().expect("a time");
    let value = pair[1].as_str().and_then(|text| text.parse().ok());
    (time as i64, value.expect("a number"))
}
