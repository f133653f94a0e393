//! Discovery: its queries, and the answers that they get from clusters where names repeat.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use advisor::model::bulk::BulkRequest;
use advisor::model::declared::Sort;
use advisor::model::experiment_name::NameTemplate;
use advisor::model::filter::Matchers;
use advisor::model::inventory::Inventory;
use advisor::ports::prometheus::discover::{Discovery, inventory, queries};
use advisor::ports::prometheus::profile::{Profile, ProfileError};
use advisor::ports::prometheus::scan::{Answer, Limits, Scanner};
use serde_json::{Value, json};

fn matchers(filter: Value, series_labels: &[&str]) -> Matchers {
    let body = json!({ "filter": filter }).to_string();
    let request = BulkRequest::parse(body.as_bytes()).unwrap();
    let series_labels: BTreeSet<String> = series_labels.iter().map(|key| key.to_string()).collect();
    request.filter.unwrap_or_default().matchers(&series_labels)
}

fn ask(filter: Value, series_labels: &[&str]) -> Discovery {
    queries(&Profile::metadata(), &matchers(filter, series_labels), 15).unwrap()
}

/// A vector of series with these labels and values.
fn vector(series: Vec<(Value, f64)>) -> Answer {
    let series = series.into_iter().map(|(labels, value)| {
        json!({ "metric": labels, "value": [1_794_773_245.6, value.to_string()] })
    });
    let result: Value = series.collect();
    scan(json!({ "status": "success", "data": { "resultType": "vector", "result": result } }))
}

fn scan(answer: Value) -> Answer {
    let mut scanner = Scanner::new(Limits::default());
    scanner.feed(answer.to_string().as_bytes()).unwrap();
    scanner.finish().unwrap()
}

/// The three answers of a cluster with these containers:
/// namespace, workload, type, container, image, pods.
fn cluster(containers: &[(&str, &str, &str, &str, &str, f64)]) -> Inventory {
    let namespaces: BTreeSet<&str> = containers.iter().map(|found| found.0).collect();
    let namespaces = namespaces.into_iter().map(|name| (json!({ "namespace": name }), 1.0));
    let workloads: BTreeSet<_> =
        containers.iter().map(|found| (found.0, found.1, found.2)).collect();
    let workloads = workloads.into_iter().map(|(namespace, workload, kind)| {
        (json!({ "namespace": namespace, "workload": workload, "workload_type": kind }), 1.0)
    });
    let containers =
        containers.iter().map(|(namespace, workload, kind, container, image, pods)| {
            let labels = json!({
                "namespace": namespace, "workload": workload, "workload_type": kind,
                "container": container, "image": image,
            });
            (labels, *pods)
        });
    inventory(
        &vector(namespaces.collect()),
        &vector(workloads.collect()),
        &vector(containers.collect()),
    )
}

fn names(inventory: &Inventory) -> Vec<String> {
    let members = inventory.members();
    let name = |member| NameTemplate::default().name("p", member, &BTreeMap::new());
    members.iter().map(name).collect()
}

#[test]
fn without_a_filter_the_queries_are_those_of_the_profile() {
    let found = ask(json!({}), &[]);
    assert_eq!(
        found.namespaces,
        r#"sum by (namespace) (avg_over_time(kube_namespace_status_phase{namespace!=""}[15m]))"#
    );
    assert_eq!(
        found.workloads,
        r#"sum by (namespace, workload, workload_type) (avg_over_time(namespace_workload_pod:kube_pod_owner:relabel{workload!=""}[15m]))"#
    );
    assert_eq!(
        found.containers,
        r#"sum by (container, image, workload, workload_type, namespace) (avg_over_time(kube_pod_container_info{container!=""}[15m]) * on (pod, namespace) group_left(workload, workload_type) group by (namespace, pod, workload, workload_type) (topk by (namespace, pod) (1, namespace_workload_pod:kube_pod_owner:relabel{workload!=""} * 2 or max_over_time(namespace_workload_pod:kube_pod_owner:relabel{workload!=""}[15m]))))"#
    );
}

#[test]
fn a_filter_is_literal_and_never_becomes_a_query() {
    let found = ask(
        json!({
            "include": { "namespace": ["kube-.*", "a\"} or up{x=\""], "workload": ["w ADDITIONAL_LABEL"] },
            "exclude": { "containers": ["istio-proxy"], "labels": { "org": "7" } },
        }),
        &["org"],
    );
    let namespace = r#"namespace=~"a\"\\} or up\\{x=\"|kube-\\.\\*""#;
    assert_eq!(
        found.namespaces,
        format!(
            r#"sum by (namespace) (avg_over_time(kube_namespace_status_phase{{namespace!="", {namespace}, org!~"7"}}[15m]))"#
        )
    );
    assert!(found.workloads.contains(&format!(
        r#"{{workload!="", workload=~"w ADDITIONAL_LABEL", {namespace}, org!~"7"}}"#
    )));
    // A workload that is not asked for may share the name of a container with one that is.
    assert!(found.containers.contains(&format!(
        r#"kube_pod_container_info{{container!="", container!~"istio-proxy", {namespace}, org!~"7"}}"#
    )));
    assert!(
        found.containers.contains(&format!(r#"relabel{{workload!="", {namespace}, org!~"7"}}"#))
    );
}

#[test]
fn labels_of_pods_select_workloads() {
    let labels = json!({ "include": { "labels": { "app.kubernetes.io/name": ["a", "b"] } }, "exclude": { "namespace": ["x"] } });
    let found = ask(labels, &[]);
    assert_eq!(
        found.workloads,
        r#"sum by (namespace, workload, workload_type) (max_over_time(kube_pod_labels{pod!="", label_app_kubernetes_io_name=~"a|b", namespace!~"x"}[15m]) * on (namespace, pod) group_left(workload, workload_type) group by (namespace, pod, workload, workload_type) (topk by (namespace, pod) (1, namespace_workload_pod:kube_pod_owner:relabel{workload!="", namespace!~"x"} * 2 or max_over_time(namespace_workload_pod:kube_pod_owner:relabel{workload!="", namespace!~"x"}[15m]))))"#
    );
    let plain = ask(json!({ "exclude": { "namespace": ["x"] } }), &[]);
    assert_eq!((found.namespaces, found.containers), (plain.namespaces, plain.containers));
}

#[test]
fn a_profile_without_a_place_for_the_filter_is_an_error() {
    let profile = r#"{"query_variables":[{"name":"namespaces","aggregation_functions":[{"function":"sum","query":"up"}]}]}"#;
    let error =
        queries(&Profile::parse(profile).unwrap(), &matchers(json!({}), &[]), 15).unwrap_err();
    assert!(matches!(error, ProfileError::NoPlace { .. }), "{error}");
}

#[test]
fn workloads_of_one_name_stay_apart() {
    let found = cluster(&[
        ("a", "web", "deployment", "app", "app:1", 2.0),
        ("a", "web", "statefulset", "db", "db:1", 1.0),
        ("b", "web", "deployment", "cache", "cache:1", 1.0),
    ]);
    assert_eq!(
        names(&found),
        [
            "p|default|a|web(deployment)|app",
            "p|default|a|web(statefulset)|db",
            "p|default|b|web(deployment)|cache"
        ]
    );
    let metadata = found.metadata("p");
    let workloads =
        &metadata["datasources"]["p"]["clusters"]["default"]["namespaces"]["a"]["workloads"];
    assert_eq!(workloads["web"]["workload_type"], "deployment");
    assert_eq!(workloads["web(statefulset)"]["containers"]["db"]["container_image_name"], "db:1");
}

#[test]
fn only_containers_that_share_a_name_within_a_namespace_need_their_owner() {
    let found = cluster(&[
        ("a", "web", "deployment", "app", "app:1", 2.0),
        ("a", "web", "deployment", "proxy", "proxy:1", 2.0),
        ("a", "job", "job", "proxy", "proxy:1", 1.0),
        ("b", "web", "deployment", "app", "app:1", 1.0),
    ]);
    let shared: Vec<bool> = found.members().iter().map(|member| member.shared_name).collect();
    assert_eq!(shared, [true, false, true, false]);
}

#[test]
fn a_name_is_shared_also_with_a_workload_that_is_filtered_out() {
    let labels = |workload: &str| json!({ "namespace": "a", "workload": workload, "workload_type": "deployment" });
    let container = |workload: &str| {
        let mut labels = labels(workload);
        labels["container"] = "app".into();
        (labels, 1.0)
    };
    let found = inventory(
        &vector(vec![(json!({ "namespace": "a" }), 1.0)]),
        &vector(vec![(labels("one"), 1.0)]),
        &vector(vec![container("one"), container("two")]),
    );
    assert_eq!(names(&found), ["p|default|a|one(deployment)|app"]);
    assert!(found.members()[0].shared_name);
}

#[test]
fn each_level_counts_only_within_the_one_above() {
    let found = inventory(
        &vector(vec![(json!({ "namespace": "a" }), 1.0), (json!({}), 1.0)]),
        &vector(vec![
            (json!({ "namespace": "a", "workload": "w", "workload_type": "deployment" }), 1.0),
            (json!({ "namespace": "gone", "workload": "w", "workload_type": "deployment" }), 1.0),
            (json!({ "namespace": "a" }), 1.0),
        ]),
        &vector(vec![
            (
                json!({ "namespace": "a", "workload": "w", "workload_type": "statefulset", "container": "c" }),
                1.0,
            ),
            (
                json!({ "namespace": "gone", "workload": "w", "workload_type": "deployment", "container": "c" }),
                1.0,
            ),
            (json!({ "namespace": "a", "workload": "w", "workload_type": "deployment" }), 1.0),
        ]),
    );
    assert!(found.members().is_empty() && !found.is_empty());
    let nothing = inventory(&vector(vec![]), &vector(vec![]), &vector(vec![]));
    assert!(nothing.is_empty());
}

#[test]
fn a_roll_out_is_one_container_with_the_image_of_most_pods() {
    let found = cluster(&[
        ("a", "w", "deployment", "app", "app:2", 3.0),
        ("a", "w", "deployment", "app", "app:1", 1.5),
    ]);
    let members = found.members();
    assert_eq!((members.len(), members[0].image.as_str(), members[0].pods), (1, "app:2", 5));
    assert!(!members[0].shared_name);
}

#[test]
fn over_a_range_the_newest_image_counts() {
    let labels = |image: &str| json!({ "namespace": "a", "workload": "w", "workload_type": "deployment", "container": "app", "image": image });
    let result = json!([
        { "metric": labels("app:1"), "values": [[1000, "9"], [1900, "8"]] },
        { "metric": labels("app:2"), "values": [[1900, "1"], [2800, "4"]] },
        { "metric": labels("app:0"), "values": [] },
    ]);
    let containers =
        scan(json!({ "status": "success", "data": { "resultType": "matrix", "result": result } }));
    let workload = json!({ "namespace": "a", "workload": "w", "workload_type": "deployment" });
    let found = inventory(
        &vector(vec![(json!({ "namespace": "a" }), 1.0)]),
        &vector(vec![(workload, 1.0)]),
        &containers,
    );
    assert_eq!((found.members()[0].image.as_str(), found.members()[0].pods), ("app:2", 4));
}

/// The recorded tree of a cluster, taken apart into answers and put together again.
#[test]
fn the_recorded_metadata_comes_out_of_the_answers_for_it() {
    let recorded = include_bytes!("../data/golden/dsmetadata_get_verbose.http.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&recorded[..]).read_to_string(&mut text).unwrap();
    let recorded: Value = serde_json::from_str(&text[text.find("\n{").unwrap()..]).unwrap();
    let recorded = &recorded["datasources"]["prometheus-1"]["clusters"]["default"]["namespaces"];

    let (mut namespaces, mut workloads, mut containers) = (Vec::new(), Vec::new(), Vec::new());
    for (namespace, found) in recorded.as_object().unwrap() {
        namespaces.push((json!({ "namespace": namespace }), 1.0));
        for (workload, found) in found["workloads"].as_object().unwrap() {
            let labels = json!({ "namespace": namespace, "workload": workload, "workload_type": found["workload_type"] });
            workloads.push((labels.clone(), 1.0));
            for (container, found) in found["containers"].as_object().unwrap() {
                let mut labels = labels.clone();
                labels["container"] = container.as_str().into();
                labels["image"] = found["container_image_name"].clone();
                containers.push((labels, 1.0));
            }
        }
    }
    let found = inventory(&vector(namespaces), &vector(workloads), &vector(containers));
    let metadata = found.metadata("prometheus-1");
    assert_eq!(
        &metadata["datasources"]["prometheus-1"]["clusters"]["default"]["namespaces"],
        recorded
    );
    assert_eq!(names(&found).len(), 100);
    assert_eq!(names(&found).into_iter().collect::<BTreeSet<_>>().len(), 100);
}

#[test]
fn a_profile_without_a_place_for_labels_cannot_filter_by_them() {
    let name = "cluster-metadata-local-monitoring";
    let document = Profile::built_in(Sort::Metadata, name).unwrap().to_string();
    let profile = Profile::parse(&document.replace(" ADDITIONAL_LABEL", "")).unwrap();
    let filter = json!({ "include": { "labels": { "org": "7" } } });
    queries(&profile, &matchers(filter.clone(), &[]), 15).unwrap();
    let error = queries(&profile, &matchers(filter, &["org"]), 15).unwrap_err().to_string();
    assert!(error.contains("`ADDITIONAL_LABEL` for the filter"), "{error}");
}
