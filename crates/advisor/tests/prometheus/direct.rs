//! The recommendation for one container from queries about it alone, as the existing service asks
//! them. All of its 32 metric queries are sent, and no code of the product reads the answers.

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::columns::{Columns, Series};
use advisor::decide::maths::recommend::{Options, Recommender, Workload};
use advisor::model::measure::{Aggregate, Metric};
use advisor::model::recommendation::{Formats, Recommendation};
use advisor::ports::prometheus::profile::Profile;
use testkit::prometheus::Prometheus;

const METRICS: [(Metric, &str); 8] = [
    (Metric::CpuRequest, "cpuRequest"),
    (Metric::CpuLimit, "cpuLimit"),
    (Metric::CpuUsage, "cpuUsage"),
    (Metric::CpuThrottle, "cpuThrottle"),
    (Metric::MemoryRequest, "memoryRequest"),
    (Metric::MemoryLimit, "memoryLimit"),
    (Metric::MemoryUsage, "memoryUsage"),
    (Metric::MemoryRss, "memoryRSS"),
];
const AGGREGATES: [Aggregate; 4] = [Aggregate::Sum, Aggregate::Avg, Aggregate::Min, Aggregate::Max];

/// One container of the pods whose names match.
pub struct One<'a> {
    pub namespace: &'a str,
    pub container: &'a str,
    pub pods: &'a str,
}

impl One<'_> {
    pub async fn recommended(
        &self,
        prometheus: &Prometheus,
        profile: &Profile,
        end_s: i64,
    ) -> Recommendation {
        let mut columns = Vec::new();
        for (metric, name) in METRICS {
            for aggregate in AGGREGATES {
                let query = profile
                    .expression(name, aggregate.name())
                    .unwrap()
                    .replace("$NAMESPACE$", self.namespace)
                    .replace("$CONTAINER_NAME$", self.container)
                    .replace("$MEASUREMENT_DURATION_IN_MIN$", "15")
                    .replace("pod!=\"\"", &format!("pod=~\"{}\"", self.pods));
                assert!(query.contains(self.pods) && !query.contains('$'), "{query}");
                let range = (end_s - 15 * 86_400, end_s);
                let found = prometheus.query_range(&query, range, 900).await;
                assert!(found.len() <= 1, "{query}: {found:?}");
                for (_, samples) in found {
                    let (times, values): (Vec<i64>, Vec<f64>) =
                        samples.into_iter().map(|(time_s, value)| (time_s * 1000, value)).unzip();
                    columns.push((metric, aggregate, times, values));
                }
            }
        }
        assert!(!columns.is_empty(), "{}: nothing is measured", self.container);
        let mut given = Columns::default();
        for (metric, aggregate, times, values) in &columns {
            given.set(*metric, *aggregate, Series::new(times, values).unwrap());
        }
        Recommender::new(Options::default()).recommend(&Workload {
            scope: Scope::Container,
            columns: given,
            formats: Formats::PROMETHEUS,
            accelerator: None,
            covered_min: None,
            runtimes: &[],
        })
    }
}
