//! Data sources that answer with very much: a cluster of 50,000 containers, and one that is out for our
//! memory.

use std::convert::Infallible;
use std::fmt::Write as _;

use advisor::model::bulk::BulkRequest;
use advisor::model::datasource::Datasource;
use advisor::model::user_source::UserSource;
use advisor::ports::prometheus::Prometheus;
use advisor::work::survey::{Progress, Survey, survey};
use axum::body::{Body, Bytes};
use futures::stream;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use super::{client, outbound, request};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, Seen, StandIn};

const CONTAINERS: usize = 50_000;
/// What this Prometheus loads at most, a tenth of the default.
const SAMPLES_MAX: i64 = 5_000_000;
/// One container more runs only for this minute.
const SHORT_FROM_S: i64 = 1_793_600_000;

/// The times of a range query, and the length of its windows.
struct Asked {
    times: Vec<i64>,
    window_s: i64,
}

impl Asked {
    fn of(seen: &Seen) -> Asked {
        let number = |name: &str| seen.form[name].parse::<i64>().unwrap();
        let (start, end, step) = (number("start"), number("end"), number("step"));
        let query = seen.query();
        let minutes = query.split_once('[').unwrap().1.split_once("m]").unwrap().0;
        let times = (0..=(end - start) / step).map(|i| start + i * step).collect();
        Asked { times, window_s: minutes.parse::<i64>().unwrap() * 60 }
    }

    /// When the expression has a value for something that ran between two times.
    fn values(&self, from_s: i64, until_s: i64) -> String {
        let mut values = String::new();
        for at in &self.times {
            if from_s <= *at && at - self.window_s < until_s {
                let comma = if values.is_empty() { "" } else { "," };
                write!(values, "{comma}[{at},\"1\"]").unwrap();
            }
        }
        values
    }
}

/// A discovery as a Prometheus answers it.
fn discovery(seen: &Seen) -> Reply {
    let (asked, query) = (Asked::of(seen), seen.query());
    let namespaces = query.contains("kube_namespace_status_phase");
    if !namespaces && asked.times.len() as i64 * CONTAINERS as i64 > SAMPLES_MAX {
        return Reply::error(422, "execution", "query processing would load too many samples");
    }
    let always = asked.values(0, i64::MAX);
    let mut out = r#"{"status":"success","data":{"resultType":"matrix","result":["#.to_owned();
    for number in (0..=CONTAINERS).step_by(if namespaces { 500 } else { 1 }) {
        let values = match number {
            CONTAINERS => asked.values(SHORT_FROM_S, SHORT_FROM_S + 60),
            _ => always.clone(),
        };
        if values.is_empty() {
            continue;
        }
        let namespace = format!(r#""namespace":"n{}""#, number / 500);
        let workload =
            format!(r#"{namespace},"workload":"w{number}","workload_type":"deployment""#);
        let labels = if namespaces {
            namespace
        } else if query.contains("kube_pod_container_info") {
            format!(r#"{workload},"container":"c{number}","image":"i""#)
        } else {
            workload
        };
        let comma = if out.ends_with('[') { "" } else { "," };
        write!(out, r#"{comma}{{"metric":{{{labels}}},"values":[{values}]}}"#).unwrap();
    }
    out.push_str("]}}");
    Reply::Text(200, Vec::new(), out)
}

#[tokio::test(flavor = "multi_thread")]
async fn fifteen_days_of_fifty_thousand_containers_are_discovered_in_longer_windows() {
    let server = StandIn::new(|seen| {
        let query = seen.query();
        if seen.is_range() && query.contains("kube_") && !query.contains("resource") {
            return discovery(seen);
        }
        // What follows is about something else.
        if seen.is_range() { Reply::status(403) } else { Small::of(1).reply(seen) }
    })
    .await;
    let end_s = 1_793_836_800;
    assert!(end_s - 15 * 86_400 < SHORT_FROM_S && SHORT_FROM_S < end_s);
    let at = |second: i64| Timestamp::from_second(second).unwrap().to_string();
    let body = json!({ "time_range": { "start": at(end_s - 15 * 86_400), "end": at(end_s) } });
    let mut request = request(json!({}));
    request.bulk = BulkRequest::parse(body.to_string().as_bytes()).unwrap();
    let last: Mutex<Option<Progress>> = Mutex::default();
    let client = client(&Datasource::at(&server.url));
    let now = Timestamp::from_second(end_s).unwrap();
    let found = survey(&client, &request, now, |progress| *last.lock() = Some(*progress)).await;
    let error = found.unwrap_err().to_string();
    assert!(error.contains("reading failed: it answered 403"), "{error}");
    assert_eq!(last.lock().unwrap().total, CONTAINERS + 1, "the one of a minute is among them");
    // Steps of 15 minutes first, in which the first refusal ends the other queries; then windows
    // without gaps, that begin and end with the range.
    let seen = server.seen();
    let asked = |part: &str| {
        let asked = seen.iter().filter(|seen| seen.is_range() && seen.query().contains(part));
        asked.map(Asked::of).collect::<Vec<_>>()
    };
    assert!(asked("relabel").iter().any(|it| (it.times.len(), it.window_s) == (1441, 900)));
    let long = asked("kube_pod_container_info").pop().unwrap();
    assert_eq!(long.times.len(), 16);
    assert!(long.times.windows(2).all(|two| two[1] - two[0] == long.window_s));
    assert_eq!(long.times[0] - long.window_s, end_s - 15 * 86_400);
    assert_eq!(long.times[15], end_s);
}

/// An answer of 200 MB of the same parts, of which each has its number.
fn two_hundred_megabytes(part: impl Fn(usize) -> String + Send + 'static) -> Reply {
    let head = r#"{"status":"success","data":{"resultType":"matrix","result":["#.to_owned();
    let count = (200 << 20) / part(0).len();
    let parts = (0..count).map(move |number| {
        let comma = if number == 0 { "" } else { "," };
        format!("{comma}{}", part(number))
    });
    let all = std::iter::once(head).chain(parts).map(|part| Ok::<_, Infallible>(Bytes::from(part)));
    Reply::Body(Body::from_stream(stream::iter(all)))
}

/// A series with these samples, of a container that nobody knows.
fn series(name: &str, samples: &str) -> String {
    format!(r#"{{"metric":{{"namespace":"shop","container":"{name}"}},"values":[{samples}]}}"#)
}

/// What a hostile data source may send, and the part of the error that names it.
fn hostile(shape: &str) -> Reply {
    match shape {
        "samples" => {
            let samples: Vec<String> =
                (0..5000).map(|i| format!(r#"[{},"0.25"]"#, 1_700_000_000 + i)).collect();
            let samples = samples.join(",");
            two_hundred_megabytes(move |number| series(&format!("x{number}"), &samples))
        }
        "bytes of labels" => {
            let long = "x".repeat(50_000);
            two_hundred_megabytes(move |number| {
                format!(r#"{{"metric":{{"a":"{long}","b":"{long}","c":"{number}"}},"values":[]}}"#)
            })
        }
        "series" => two_hundred_megabytes(|number| {
            let some = (0..1000).map(|i| series(&format!("x{number}-{i}"), ""));
            some.collect::<Vec<_>>().join(",")
        }),
        _ => two_hundred_megabytes(|_| " ".repeat(100_000)),
    }
}

/// The most memory that this process has had, in MiB.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() / 1024.0
}

/// In a process of its own, because memory is that of all tests otherwise.
#[test]
fn two_hundred_megabytes_are_refused_and_not_kept() {
    const ALONE: &str = "MAINSTAY_TEST_ALONE";
    const NAME: &str = "prometheus::large::two_hundred_megabytes_are_refused_and_not_kept";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(refused());
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", NAME, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn refused() {
    let before = peak_mib();
    for shape in ["samples", "bytes of labels", "series", "less whitespace"] {
        let server =
            StandIn::new(
                move |seen| {
                    if seen.is_range() { hostile(shape) } else { Small::of(1).reply(seen) }
                },
            )
            .await;
        let found = surveyed(&server).await.unwrap();
        let why = found.advice[0].outcome.as_ref().unwrap_err();
        assert!(why.contains(shape), "{shape}: {why}");
        // By its name alone as well.
        let named = |seen: &Seen| seen.query().contains("container=~\"c0\"");
        assert_eq!(server.seen().iter().any(named), shape != "less whitespace", "{shape}");
    }
    let server = StandIn::new(|seen| {
        let discovery = seen.query().contains("kube_pod_container_info");
        if discovery { hostile("series") } else { Small::of(1).reply(seen) }
    })
    .await;
    let error = surveyed(&server).await.unwrap_err().to_string();
    assert!(error.contains("discovery failed: the answer has more than 200000 series"), "{error}");
    let grown = peak_mib() - before;
    assert!(grown < 250.0, "{grown:.0} MiB");
}

/// As a data source of a user.
async fn surveyed(server: &StandIn) -> kernel::Result<Survey> {
    let source = UserSource::try_from(json!({ "name": "own", "url": server.url })).unwrap();
    let client = Prometheus::of_user(&source, &outbound(), false).await?;
    survey(&client, &request(json!({})), Timestamp::now(), |_| {}).await
}
