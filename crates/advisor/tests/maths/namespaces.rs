//! Namespaces: each row of the recorded table, with everything that was known by then.

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::recommend::{Options, Recommender};
use advisor::model::measure::{Aggregate, Metric};
use advisor::model::notice::Notice;
use advisor::model::recommendation::Term;

use super::table::{Comparison, Table, compare_row, workload};

const NAMESPACE: [(&str, Metric); 8] = [
    ("namespaceCpuUsage", Metric::CpuUsage),
    ("namespaceCpuThrottle", Metric::CpuThrottle),
    ("namespaceCpuRequest", Metric::CpuRequest),
    ("namespaceCpuLimit", Metric::CpuLimit),
    ("namespaceMemoryUsage", Metric::MemoryUsage),
    ("namespaceMemoryRSS", Metric::MemoryRss),
    ("namespaceMemoryRequest", Metric::MemoryRequest),
    ("namespaceMemoryLimit", Metric::MemoryLimit),
];

#[test]
fn the_rows_of_a_namespace_are_reproduced() {
    let name = "clowder-system.expected.csv";
    let table = Table::read(name);
    let inputs = table.inputs(&NAMESPACE);
    let options = Options { plots: false, ..Options::default() };
    let mut recommender = Recommender::new(options);
    let mut comparison = Comparison::default();
    let all = workload(Scope::Namespace, &table.end_ms, &inputs, table.end_ms.len());
    let mut loaded = recommender.load(&all);
    for (row, end_ms) in table.end_ms.iter().enumerate() {
        compare_row(&table, row, &loaded.until(*end_ms), &mut comparison);
    }
    comparison.finish(name, 1422 * 48);
}

#[test]
fn a_namespace_without_a_count_of_pods_says_so_and_one_with_it_rounds_up() {
    let end_ms = [0, 900_000];
    let mut inputs = vec![
        (Metric::CpuUsage, Aggregate::Max, vec![2.0, 3.0]),
        (Metric::MemoryUsage, Aggregate::Max, vec![5.0, 5.0]),
    ];
    let mut recommender = Recommender::new(Options::default());
    let mut cost = |inputs: &[_]| {
        let found = recommender.recommend(&workload(Scope::Namespace, &end_ms, inputs, 2));
        found.latest.unwrap().term(Term::Short).available.clone().unwrap().cost
    };
    let without = cost(&inputs);
    assert_eq!((without.pods_count, without.config.requests.cpu), (0, Some(3.0)));
    assert!(without.notices.contains(Notice::PodsZero));
    inputs.push((Metric::Pods, Aggregate::Avg, vec![6.2, 1.0]));
    let with = cost(&inputs);
    assert_eq!((with.pods_count, with.config.requests.memory), (7, Some(6.0)));
    assert!(with.notices.is_empty());
}
