//! Profiles and layers: the recorded requests, in the order in which they were recorded, and what a
//! profile changes.

use advisor::model::experiment::Experiment;
use kernel::Draft;
use serde_json::{Value, json};
use testkit::stores::{self, Fresh};

use super::differences::{NO_BODY, NOT_FOUND, RAW, STATUS};
use super::golden::Replay;
use crate::support::recorded::Exchange;
use crate::support::server::{Server, config};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

async fn server(fresh: &Fresh) -> Server {
    Server::start(fresh, &config(&[])).await
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_metric_and_metadata_profiles_are_answered_as_they_were() {
    let fresh = stores::sqlite().await.unwrap();
    let server = server(&fresh).await;
    let mut replay = Replay::new(&server);
    replay
        .all(&[
            "pre_listMetadataProfiles_empty",
            "createMetadataProfile_empty",
            "createMetadataProfile",
            "listMetadataProfiles",
            "listMetadataProfiles_name",
            "listMetadataProfiles_verbose",
            "createMetadataProfile_2",
            "updateMetadataProfile_noname",
            "updateMetadataProfile_unknown",
            "deleteMetadataProfile_unknown",
            "createMetricProfile_empty",
            "createMetricProfile",
            "createMetricProfile_dup",
            "listMetricProfiles",
            "listMetricProfiles_name",
            "listMetricProfiles_verbose",
            "createMetricProfile_2",
            "deleteMetricProfile",
            "deleteMetricProfile_noname",
        ])
        .await;
    replay.finish(&[STATUS, RAW, NO_BODY]);
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_performance_profiles_are_answered_without_their_defects() {
    let fresh = stores::sqlite().await.unwrap();
    let server = server(&fresh).await;
    let mut replay = Replay::new(&server);
    replay
        .all(&[
            "listPerformanceProfiles",
            "updatePerformanceProfile",
            "deletePerformanceProfile_unknown",
            "deletePerformanceProfile",
            "createPerformanceProfile",
        ])
        .await;
    replay.finish(&[STATUS, NOT_FOUND]);

    // What could not be recorded there.
    let profile: Value = Exchange::read("createPerformanceProfile").body.parse().unwrap();
    let listed = server.get("/listPerformanceProfiles").await.body;
    let listed = &listed.as_array().unwrap()[..];
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["name"], "resource-optimization-openshift");
    assert_eq!(listed[0]["profile_version"].to_string(), "2.0");
    assert_eq!(listed[0]["slo"]["sloClass"], "resource_usage");
    let again = server.call("POST", "/createPerformanceProfile", &profile.to_string()).await;
    let message = "Validation failed: Performance Profile already exists: \
                   resource-optimization-openshift";
    assert_eq!((again.status, again.body["message"].as_str()), (409, Some(message)));
    let with_version = |version: f64| {
        let mut profile = profile.clone();
        profile["profile_version"] = version.into();
        profile.to_string()
    };
    let older = server.call("PUT", "/updatePerformanceProfile", &with_version(1.0)).await;
    let message = older.body["message"].as_str().unwrap().to_owned();
    assert!(older.status == 409 && message.contains("(1.0) is older than"), "{message}");
    let newer = server.call("PUT", "/updatePerformanceProfile", &with_version(3.0)).await;
    let message = "Performance Profile : resource-optimization-openshift updated successfully to \
                   version 3.0. View all performance profiles at /listPerformanceProfiles";
    assert_eq!((newer.status, newer.body["message"].as_str()), (201, Some(message)));
    let path = "/deletePerformanceProfile?name=resource-optimization-openshift";
    let deleted = server.call("DELETE", path, "").await;
    assert_eq!((deleted.status, deleted.body["status"].as_str()), (201, Some("SUCCESS")));
    assert_eq!(server.get("/listPerformanceProfiles").await.body, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_layers_are_answered_as_they_were() {
    let fresh = stores::sqlite().await.unwrap();
    let server = server(&fresh).await;
    let recorded = Exchange::read("listLayers").json();
    let mut replay = Replay::new(&server);
    replay.one("pre_listLayers_empty").await;
    replay.one("createLayer_empty").await;
    // The two whose creation was not recorded.
    for name in ["container", "quarkus"] {
        let layers = recorded.as_array().unwrap();
        let layer = layers.iter().find(|layer| layer["layer_name"] == name).unwrap();
        let created = server.call("POST", "/createLayer", &layer.to_string()).await;
        assert_eq!(created.status, 201, "{}", created.text);
    }
    replay
        .all(&[
            "createLayer_hotspot-micrometer",
            "createLayer_semeru-actuator",
            "createLayer_dup",
            "listLayers",
            "listLayers_unknown",
        ])
        .await;
    replay.finish(&[RAW]);
    let one = server.get("/listLayers?name=quarkus").await;
    assert_eq!(one.body.as_array().unwrap()[..], recorded.as_array().unwrap()[2..3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_built_in_profile_is_there_without_being_created_and_is_replaced_by_ones_own() {
    let fresh = stores::sqlite().await.unwrap();
    let server = server(&fresh).await;
    let name = "resource-optimization-local-monitoring";
    let built_in = server.get(&format!("/listMetricProfiles?name={name}")).await;
    assert_eq!(built_in.body, Exchange::read("listMetricProfiles_name").json());
    let mut own = built_in.body[0].clone();
    own["k8s_type"] = "minikube".into();
    let created = server.call("POST", "/createMetricProfile", &own.to_string()).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let listed = server.get(&format!("/listMetricProfiles?name={name}")).await;
    assert_eq!(listed.body, json!([own]));
    let deleted = server.call("DELETE", &format!("/deleteMetricProfile?name={name}"), "").await;
    assert_eq!(deleted.status, 201);
    let listed = server.get(&format!("/listMetricProfiles?name={name}")).await;
    assert_eq!(listed.body, built_in.body);
    let again = server.call("POST", "/createMetricProfile", &own.to_string()).await;
    assert_eq!(again.status, 201, "a name is free again: {}", again.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_cannot_be_used_is_refused_with_its_field_and_the_reason() {
    let fresh = stores::sqlite().await.unwrap();
    let server = server(&fresh).await;
    let mut metric: Value = Exchange::read("createMetricProfile_2").body.parse().unwrap();
    let variables = "/slo/function_variables";
    let refused = async |path: &str, profile: &Value, field: &str, part: &str| {
        let answer = server.call("POST", path, &profile.to_string()).await;
        let message = answer.body["message"].as_str().unwrap().to_owned();
        assert_eq!((answer.status, answer.body["httpcode"].as_u64()), (400, Some(400)));
        assert!(message.starts_with(&format!("{field}: ")) && message.contains(part), "{message}");
    };
    let first = format!("{variables}/0/aggregation_functions/0/query");
    let before = metric.pointer(&first).unwrap().clone();
    let field = "slo.function_variables.cpuRequest.avg";
    for (query, part) in [
        ("up", "it is not an aggregation"),
        ("sum by (container) (up)", "by namespace and container"),
        (r#"sum by (container, namespace) (up{n="$NAMESPACE"})"#, "has no `namespace="),
    ] {
        *metric.pointer_mut(&first).unwrap() = query.into();
        refused("/createMetricProfile", &metric, field, part).await;
    }
    *metric.pointer_mut(&first).unwrap() = before;
    let gpu = metric.pointer(variables).unwrap().as_array().unwrap().iter();
    let gpu = gpu.clone().position(|one| one["name"] == "acceleratorMemoryUsage").unwrap();
    let query = format!("{variables}/{gpu}/aggregation_functions/1/query");
    *metric.pointer_mut(&query).unwrap() = "max by (UUID) (x{a=\"$NAMESPACE$\"})".into();
    let field = "slo.function_variables.acceleratorMemoryUsage.max";
    refused("/createMetricProfile", &metric, field, "by exported_namespace").await;
    metric.pointer_mut(variables).unwrap().as_array_mut().unwrap().retain(|one| {
        !one["name"].as_str().unwrap().starts_with("accelerator") && one["name"] != "memoryRSS"
    });
    let field = "slo.function_variables.memoryRSS.min";
    refused("/createMetricProfile", &metric, field, "no expression for memoryRSS").await;

    let mut metadata: Value = Exchange::read("createMetadataProfile_2").body.parse().unwrap();
    let query = "/query_variables/0/aggregation_functions/0/query";
    *metadata.pointer_mut(query).unwrap() = "sum by (namespace) (kube_namespace_labels)".into();
    let field = "query_variables.namespace.sum";
    refused("/createMetadataProfile", &metadata, field, "no `namespace!=\"\"`").await;
    let large = json!({ "name": "x".repeat(300_000) }).to_string();
    let large = server.call("POST", "/createPerformanceProfile", &large).await;
    let message = large.body["message"].as_str().unwrap();
    assert!(large.status == 400 && message.contains("at most 262144"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_profile_is_updated_and_each_organisation_has_its_own() {
    let fresh = stores::sqlite().await.unwrap();
    let server = server(&fresh).await;
    let mut profile: Value = Exchange::read("createMetadataProfile").body.parse().unwrap();
    let created = server.call("POST", "/createMetadataProfile", &profile.to_string()).await;
    assert_eq!(created.status, 201);
    profile["k8s_type"] = "minikube".into();
    let name = "cluster-metadata-local-monitoring";
    let path = format!("/updateMetadataProfile?name={name}");
    let updated = server.call("PUT", &path, &profile.to_string()).await;
    let message = format!(
        "Metadata profile: {name} updated successfully. View Metadata Profiles at \
         /listMetadataProfiles"
    );
    assert_eq!((updated.status, updated.body["message"].as_str()), (201, Some(&*message)));
    let listed = server.get(&format!("/listMetadataProfiles?name={name}")).await;
    assert_eq!(listed.body[0]["k8s_type"], "minikube");
    profile["metadata"]["name"] = "other".into();
    let other = server.call("PUT", &path, &profile.to_string()).await;
    assert_eq!((other.status, other.body["status"].as_str()), (400, Some("ERROR")));

    let globex = server.authorization_of("globex");
    let listed = server.call_as(&globex, "GET", "/listMetadataProfiles", "").await;
    assert_eq!(
        (listed.status, &listed.body["message"]),
        (400, &json!("No metadata profiles found!"))
    );
    let path = format!("/deleteMetadataProfile?name={name}");
    let deleted = server.call_as(&globex, "DELETE", &path, "").await;
    assert_eq!(deleted.status, 400, "{}", deleted.text);
    profile["metadata"]["name"] = name.into();
    let text = profile.to_string();
    let created = server.call_as(&globex, "POST", "/createMetadataProfile", &text).await;
    assert_eq!(created.status, 201, "{}", created.text);
}

/// The profile of this file with another name, in which `from` is `to`.
fn profile(recorded: &str, name: &str, from: &str, to: &str) -> String {
    let mut profile: Value = Exchange::read(recorded).body.replace(from, to).parse().unwrap();
    profile["metadata"]["name"] = name.into();
    profile.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_finds_and_measures_by_the_profiles_that_it_and_its_experiments_name() {
    let small = Small::of(4);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("p", &source.url)])).await;
    let metadata = profile("createMetadataProfile", "own", "avg_over_time", "max_over_time");
    let created = server.call("POST", "/createMetadataProfile", &metadata).await;
    assert_eq!(created.status, 201, "{}", created.text);
    // In the place of the built-in one.
    let name = "resource-optimization-local-monitoring";
    let metric = profile("createMetricProfile", name, "working_set_bytes", "usage_bytes");
    assert_eq!(server.call("POST", "/createMetricProfile", &metric).await.status, 201);
    let request = json!({ "datasource": "p", "metadata_profile": "own" });
    let job = server.completed(&server.create(request).await.unwrap()).await;
    assert_eq!((job.status.processed, job.status.failed), (4, 0));
    let seen = source.seen();
    let has = |part: &str| seen.iter().filter(|seen| seen.query().contains(part)).count();
    assert!(has("max_over_time(kube_namespace_status_phase") == 1, "the job's own discovery");
    assert_eq!(has("avg_over_time(kube_namespace_status_phase"), 0);
    assert_eq!((has("container_memory_usage_bytes"), has("working_set_bytes")), (4, 0));

    let failed = server.create(json!({ "datasource": "p", "metadata_profile": "nope" })).await;
    let failed = server.ended(&failed.unwrap()).await;
    let [notice] = &failed.status.notices[..] else { panic!("{:?}", failed.status) };
    let recorded = Exchange::read("bulk_post_unknown_metadata_profile_status").json();
    let recorded = &recorded["summary"]["notifications"]["400"];
    assert_eq!(notice.message, recorded["message"].as_str().unwrap());
    assert_eq!((notice.key, notice.code, &*notice.level), (400, 400, "ERROR"));
    assert_eq!(failed.phase.wire(), "FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_experiment_is_measured_by_the_metric_profile_that_it_names() {
    let small = Small::of(4);
    let answering = small.clone();
    let source = StandIn::new(move |seen| answering.reply(seen)).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("p", &source.url)])).await;
    let run = async || {
        let id = server.create(json!({ "datasource": "p" })).await.unwrap();
        server.completed(&id).await
    };
    run().await;
    let own = profile("createMetricProfile", "own", "working_set_bytes", "usage_bytes");
    assert_eq!(server.call("POST", "/createMetricProfile", &own).await.status, 201);
    let now = server.app.ambient.now();
    for object in server.objects("experiment").await {
        let mut experiment: Experiment = object.spec.parse().unwrap();
        for (container, name) in [("c1", "own"), ("c2", "gone")] {
            if experiment.name == small.experiment(container) {
                experiment.performance_profile = name.into();
            }
        }
        let write = Draft::of(&object).spec(&experiment).respec("updated", now);
        kernel::store::commit(server.app.store.as_ref(), write.into(), now).await.unwrap();
    }
    let before = source.seen().len();
    let job = run().await;
    assert_eq!((job.status.processed, job.status.failed), (4, 1));
    let experiments = server.experiments().await;
    let error = experiments[&small.experiment("c2")].status.error.clone().unwrap();
    assert_eq!(error, "The metric profile `gone` of the experiment does not exist.");
    let asked = &source.seen()[before..];
    for (metric, containers) in [
        ("container_memory_usage_bytes", "container=~\"c1\""),
        ("container_memory_working_set_bytes", "container=~\"c0|c3\""),
    ] {
        let found = asked.iter().filter(|seen| seen.query().contains(metric));
        assert!(found.clone().count() == 4, "{metric}");
        assert!(found.clone().all(|seen| seen.query().contains(containers)), "{metric}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_recording_rules_raw_metrics_take_the_place_of_the_built_in_profile_only() {
    let small = Small::of(2);
    let source = StandIn::new(move |seen| {
        if seen.query().starts_with("count(") {
            let none = json!({ "resultType": "vector", "result": [] });
            return Reply::Json(json!({ "status": "success", "data": none }));
        }
        small.reply(seen)
    })
    .await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("p", &source.url)])).await;
    let run = async || {
        let id = server.create(json!({ "datasource": "p" })).await.unwrap();
        let job = server.completed(&id).await;
        let [notice] = &job.status.notices[..] else { panic!("{:?}", job.status) };
        (job.status.with_recording_rules, notice.message.clone())
    };
    // Installation scripts create the built-in profile, which then is no other one.
    let built_in = Exchange::read("createMetricProfile").body;
    assert_eq!(server.call("POST", "/createMetricProfile", &built_in).await.status, 201);
    let (with_rules, notice) = run().await;
    assert!(!with_rules && notice.contains("is computed from raw metrics"), "{notice}");
    let name = "resource-optimization-local-monitoring";
    let path = format!("/deleteMetricProfile?name={name}");
    assert_eq!(server.call("DELETE", &path, "").await.status, 201);
    let own = profile("createMetricProfile", name, "working_set_bytes", "usage_bytes");
    assert_eq!(server.call("POST", "/createMetricProfile", &own).await.status, 201);
    let (with_rules, notice) = run().await;
    assert!(with_rules && notice.contains("which the metric profile reads"), "{notice}");
}
