//! The queries of shards, against those that the existing service was recorded with.

use std::collections::BTreeSet;
use std::io::Read;

use advisor::model::filter::{Matcher, Test};
use advisor::model::inventory::{Attribution, Selection};
use advisor::model::measure::{Aggregate, Metric};
use advisor::ports::prometheus::profile::{Profile, ProfileError};
use advisor::ports::prometheus::queries::{Queries, Query, Range};
use advisor::ports::prometheus::scan::{Limits, Scanner};
use serde_json::Value;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn selection(namespaces: &[&str], containers: Option<&[&str]>) -> Selection {
    Selection {
        attribution: Attribution::Name,
        namespaces: set(namespaces),
        containers: containers.map(set),
        workloads: None,
    }
}

fn queries(profile: &Profile) -> Queries<'_> {
    Queries { profile, series: &[], minutes: 15 }
}

fn text(found: &[Query], metric: Metric, aggregate: Aggregate) -> &str {
    let found = found.iter().find(|query| (query.metric, query.aggregate) == (metric, aggregate));
    &found.unwrap().text
}

/// Everything that was asked and answered for one container.
fn recorded(pair: &[u8]) -> Value {
    let mut text = String::new();
    flate2::read::GzDecoder::new(pair).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn for_one_container_they_are_those_that_were_recorded() {
    let pair = recorded(include_bytes!("../data/pairs/busy_ge_1core.json.gz"));
    let recorded = pair["queries"].as_array().unwrap();
    let recorded: BTreeSet<&str> =
        recorded.iter().map(|query| query["params"]["query"].as_str().unwrap()).collect();
    let profile = Profile::with_recording_rules();
    let one = selection(&["ns-00"], Some(&["busy"]));
    let mut found = queries(&profile).containers(&one).unwrap();
    assert_eq!(found.len(), 17);
    found.extend(queries(&profile).detection(&one).unwrap());
    for query in found {
        let plain =
            query.text.replace("=~\"ns-00\"", "=\"ns-00\"").replace("=~\"busy\"", "=\"busy\"");
        assert!(recorded.contains(plain.as_str()), "{plain}");
    }
    let end = pair["queries"][3]["params"]["end"].as_str().unwrap();
    let range = Range::until(end.parse().unwrap());
    let times = pair["queries"][3]["response"]["data"]["result"][0]["values"].as_array().unwrap();
    assert_eq!(times.first().unwrap()[0], range.start_s);
    assert_eq!(times.last().unwrap()[0], range.end_s);
    assert_eq!(range.form("up")[3], ("step", "900".to_owned()));
}

#[test]
fn a_shard_of_whole_namespaces_names_no_containers() {
    let profile = Profile::with_recording_rules();
    let found = queries(&profile).containers(&selection(&["b.c", "a"], None)).unwrap();
    assert_eq!(
        text(&found, Metric::CpuUsage, Aggregate::Sum),
        r#"sum by(container, namespace)(avg_over_time(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{container!="", container!="POD", pod!="", namespace=~"a|b\\.c", container!=""}[15m]))"#
    );
    let raw = Profile::without_recording_rules();
    let found = queries(&raw).containers(&selection(&["a"], Some(&["x", "y"]))).unwrap();
    assert_eq!(
        text(&found, Metric::CpuUsage, Aggregate::Max),
        r#"max by(container, namespace)(max_over_time(rate(container_cpu_usage_seconds_total{container!="", container!="POD", pod!="", namespace=~"a", container=~"x|y"}[5m])[15m:]))"#
    );
}

#[test]
fn where_names_are_shared_the_owner_is_joined() {
    let profile = Profile::with_recording_rules();
    let shared = Selection {
        attribution: Attribution::Owner,
        namespaces: set(&["a"]),
        containers: Some(set(&["app"])),
        workloads: Some(set(&["one", "two"])),
    };
    let found = queries(&profile).containers(&shared).unwrap();
    assert_eq!(
        text(&found, Metric::MemoryUsage, Aggregate::Avg),
        r#"avg by (container, namespace, workload, workload_type) ((avg_over_time(container_memory_working_set_bytes{container!="", container!="POD", pod!="", namespace=~"a", container=~"app"}[15m])) * on (namespace, pod) group_left (workload, workload_type) group by (namespace, pod, workload, workload_type) (topk by (namespace, pod) (1, namespace_workload_pod:kube_pod_owner:relabel{workload=~"one|two", namespace=~"a"} * 2 or max_over_time(namespace_workload_pod:kube_pod_owner:relabel{workload=~"one|two", namespace=~"a"}[15m]))))"#
    );
    assert_eq!(found.len(), 17);
}

#[test]
fn labels_of_the_data_source_are_in_every_selector() {
    let profile = Profile::with_recording_rules();
    let series = [Matcher::new("org", Test::AnyOf(vec!["7".to_owned()]))];
    let queries = Queries { profile: &profile, series: &series, minutes: 15 };
    let shared = Selection { attribution: Attribution::Owner, ..selection(&["a"], None) };
    for query in queries.containers(&shared).unwrap() {
        assert_eq!(query.text.matches(r#"namespace=~"a", org=~"7""#).count(), 3, "{}", query.text);
    }
    let found = queries.containers(&selection(&["a"], None)).unwrap();
    assert_eq!(
        queries.rule_probes(&found),
        [
            r#"count(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{org=~"7"})"#
        ]
    );
    let raw = Profile::without_recording_rules();
    let queries = Queries { profile: &raw, ..queries };
    assert_eq!(
        queries.rule_probes(&queries.containers(&selection(&["a"], None)).unwrap()),
        [""; 0]
    );
}

#[test]
fn namespaces_and_accelerators_have_their_own() {
    let profile = Profile::with_recording_rules();
    let queries = queries(&profile);
    let found = queries.namespaces(&set(&["a", "b"])).unwrap();
    assert_eq!(
        text(&found, Metric::CpuRequest, Aggregate::Sum),
        r#"sum by (namespace) (kube_resourcequota{namespace=~"a|b", resource="requests.cpu", type="hard"})"#
    );
    let found = queries.accelerator_cores(&selection(&["a"], Some(&["c"]))).unwrap();
    assert_eq!(
        found.text,
        r#"max by (Hostname,device,modelName,UUID,exported_container,exported_namespace) (max_over_time(DCGM_FI_DEV_GPU_UTIL{exported_namespace=~"a",exported_container=~"c"}[15m]))"#
    );
    let found = queries.frame_buffers(&set(&["GPU-1"])).unwrap();
    assert!(found.text.contains(r#"{UUID=~"GPU-1"}[15m]"#), "{}", found.text);
}

#[test]
fn names_cannot_leave_their_string() {
    let profile = Profile::with_recording_rules();
    let odd = "x\"}) or vector(1) # $CONTAINER_NAME$ \\";
    let plain = queries(&profile).containers(&selection(&["a"], Some(&["b"]))).unwrap();
    let found = queries(&profile).containers(&selection(&[odd], Some(&[odd]))).unwrap();
    for (plain, query) in plain.iter().zip(found) {
        let escaped = r#""x\"\\}\\) or vector\\(1\\) # \\$CONTAINER_NAME\\$ \\\\""#;
        assert_eq!(query.text.matches(escaped).count(), 2, "{}", query.text);
        let with = |text: &str, value: &str| text.replace(value, "");
        let plain = with(&with(&plain.text, r#""a""#), r#""b""#);
        assert_eq!(with(&query.text, escaped), plain);
    }
}

#[test]
fn an_expression_that_cannot_be_asked_of_many_is_named() {
    let profile = |query: &str| {
        let function = |name: &str| format!(r#"{{"function":"{name}","query":{query:?}}}"#);
        let functions = ["avg", "sum", "min", "max"].map(function).join(",");
        let variable = format!(r#"{{"name":"cpuRequest","aggregation_functions":[{functions}]}}"#);
        Profile::parse(&format!(r#"{{"slo":{{"function_variables":[{variable}]}}}}"#)).unwrap()
    };
    for (query, problem) in [
        (r#"x{namespace="$NAMESPACE$"}"#, "not an aggregation"),
        (r#"sum by (container) (x{namespace="$NAMESPACE$"})"#, "by namespace and container"),
        (r#"sum by (container, namespace) (x{namespace='$NAMESPACE$'})"#, "has no `namespace="),
        (r#"sum by (container, namespace) (x{namespace="$NAMESPACE$", a="$POD$"})"#, "placeholder"),
    ] {
        let error = queries(&profile(query)).containers(&selection(&["a"], None)).unwrap_err();
        assert!(matches!(error, ProfileError::NotBatched { .. }));
        assert!(error.to_string().contains(problem), "{query}: {error}");
    }
    let missing = queries(&Profile::metadata()).containers(&selection(&["a"], None));
    assert!(matches!(missing, Err(ProfileError::Missing { .. })));
}

/// Every recorded answer, also with the spaces that it was recorded with.
#[test]
fn recorded_answers_are_scanned_as_serde_json_reads_them() {
    let pairs: [&[u8]; 3] = [
        include_bytes!("../data/pairs/busy_ge_1core.json.gz"),
        include_bytes!("../data/pairs/stopped_1day_ago.json.gz"),
        include_bytes!("../data/pairs/no_usage_data.json.gz"),
    ];
    let mut samples = 0;
    for pair in pairs {
        for query in recorded(pair)["queries"].as_array().unwrap() {
            let response = &query["response"];
            for text in [response.to_string(), serde_json::to_string_pretty(response).unwrap()] {
                let mut scanner = Scanner::new(Limits::default());
                text.as_bytes().chunks(1000).for_each(|chunk| scanner.feed(chunk).unwrap());
                let answer = scanner.finish().unwrap();
                for ((_, times, values), right) in
                    answer.series().zip(response["data"]["result"].as_array().unwrap())
                {
                    let one = [right["value"].clone()];
                    let right = right["values"].as_array().map_or(&one[..], Vec::as_slice);
                    assert_eq!(values.len(), right.len());
                    for ((time, value), right) in times.iter().zip(values).zip(right) {
                        assert_eq!(*time, (right[0].as_f64().unwrap() * 1000.0).round() as i64);
                        assert_eq!(*value, right[1].as_str().unwrap().parse::<f64>().unwrap());
                    }
                    samples += values.len();
                }
            }
        }
    }
    assert_eq!(samples, 2 * (32 * 1441 + 32 * 1343 + 4));
}
