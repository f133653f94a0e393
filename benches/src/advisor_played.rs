//! A data source for jobs that no real Prometheus of one machine could hold: as many containers as one
//! likes, of which all measure the same. It answers as fast as it can be read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// Containers of a namespace: less than a shard has.
const OF_NAMESPACE: usize = 100;
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

pub struct Played {
    pub url: String,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

struct Shared {
    containers: usize,
    queries: AtomicU64,
    /// The samples of a series, by the end of its range: the last that was asked for.
    samples: Mutex<(i64, Arc<str>)>,
}

impl Played {
    pub async fn start(containers: usize) -> anyhow::Result<Played> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let samples = Mutex::new((0, Arc::from("")));
        let shared = Arc::new(Shared { containers, queries: AtomicU64::new(0), samples });
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // It ends with this value.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Played { url, shared, _serving: serving })
    }

    /// How many queries it has answered.
    pub fn queries(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, body: Bytes) -> Response {
    shared.queries.fetch_add(1, Ordering::Relaxed);
    let form: BTreeMap<String, String> = url::form_urlencoded::parse(&body).into_owned().collect();
    let query = form.get("query").map_or("", String::as_str);
    let range = uri.path().ends_with("/query_range");
    let end_s = form.get("end").and_then(|text| text.parse().ok()).unwrap_or(0);
    let samples = if range { shared.samples(end_s) } else { Arc::from("") };
    let kind = if range { "matrix" } else { "vector" };
    let mut out = format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":["#);
    let mut first = true;
    let mut add = |labels: &str| {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        let values = if range {
            format!(r#""values":{samples}"#)
        } else {
            r#""value":[1790000000,"1"]"#.to_owned()
        };
        // A string takes everything.
        let _ = write!(out, r#"{{"metric":{{{labels}}},{values}}}"#);
    };
    let namespaces = shared.containers.div_ceil(OF_NAMESPACE);
    if query == "up" || query.starts_with("count(") {
        add("");
    } else if query.contains("kube_namespace_status_phase") {
        (0..namespaces).for_each(|n| add(&format!(r#""namespace":"n{n}""#)));
    } else if query.contains("jvm_info") || query.contains("DCGM") {
    } else {
        let named = Named::of(query);
        for number in 0..shared.containers {
            let namespace = format!("n{}", number / OF_NAMESPACE);
            let container = format!("c{number}");
            if !named.has(&namespace, &container) {
                continue;
            }
            let owner = format!(
                r#""namespace":"{namespace}","workload":"w{number}","workload_type":"deployment""#
            );
            if query.contains("kube_pod_container_info") {
                add(&format!(r#"{owner},"container":"{container}","image":"i""#));
            } else if range {
                add(&format!(r#""namespace":"{namespace}","container":"{container}""#));
            } else {
                add(&owner);
            }
        }
    }
    out.push_str("]}}");
    (JSON, out).into_response()
}

impl Shared {
    fn samples(&self, end_s: i64) -> Arc<str> {
        let mut samples = self.samples.lock();
        if samples.0 != end_s {
            let mut text = String::from("[");
            for back in (0..=1440).rev() {
                let comma = if back == 1440 { "" } else { "," };
                let at = end_s - back * 900;
                let _ = write!(text, r#"{comma}[{at},"0.{}"]"#, 100_000 + back * 37 % 1000);
            }
            text.push(']');
            *samples = (end_s, text.into());
        }
        samples.1.clone()
    }
}

/// The names that a query lists; none of a dimension means all.
struct Named {
    namespaces: Option<Vec<String>>,
    containers: Option<Vec<String>>,
}

impl Named {
    fn of(query: &str) -> Named {
        let names = |label: &str| {
            let (_, rest) = query.split_once(&format!("{label}=~\""))?;
            let (names, _) = rest.split_once('"')?;
            Some(names.split('|').map(str::to_owned).collect())
        };
        Named { namespaces: names("namespace"), containers: names("container") }
    }

    fn has(&self, namespace: &str, container: &str) -> bool {
        let among = |names: &Option<Vec<String>>, name: &str| {
            names.as_ref().is_none_or(|names| names.iter().any(|other| other == name))
        };
        among(&self.namespaces, namespace) && among(&self.containers, container)
    }
}
