//! Every rule of what an admin may patch.

use std::collections::BTreeMap;

use kernel::Object;
use serde_json::Value;

use super::*;
use crate::model::cluster::{self, Operator};
use crate::model::error_code::code_of;
use crate::model::instance::{Spec, Status};
use crate::model::payload::Payload;

fn kafka() -> Kind {
    Kind::read("kafka.yaml", include_str!("../../../../kinds/kafka.yaml")).unwrap()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn instance(phase: Phase) -> Instance {
    let versions = map(&[("strimzi", "v1"), ("kafka", "2.8.2"), ("kafkaIbp", "2.8")]);
    Instance {
        id: "k1".into(),
        kind: "kafka".into(),
        org: "acme".into(),
        owner: "alice".into(),
        name: "demo".into(),
        phase,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        revision: 1,
        spec: Spec {
            instance_type: "standard".into(),
            size_id: "x1".into(),
            billing_model: "eval".into(),
            versions: versions.clone().into(),
            ..Spec::default()
        },
        status: Status { versions: versions.into(), ..Status::default() },
    }
}

/// Two operators: one that is ready, with older and newer versions, and one that is not.
fn cluster() -> Cluster {
    let operator = |version: &str, ready: bool| Operator {
        version: version.into(),
        ready,
        components: [
            ("kafka", ["2.7.0", "2.8.1", "2.8.2", "3.0.0"]),
            ("kafkaIbp", ["2.7", "2.8", "3.0", "3.1"]),
        ]
        .map(|(name, all)| (name.to_owned(), all.map(str::to_owned).to_vec()))
        .into(),
    };
    let key = cluster::key("c1");
    let mut object = Object::new(key, "", "", "c1", cluster::Phase::Ready.label(), Timestamp(0));
    object.spec = kernel::Json::encode(&cluster::Spec::default());
    let operators =
        BTreeMap::from([("kafka".to_owned(), vec![operator("v1", true), operator("v2", false)])]);
    object.status =
        kernel::Json::encode(&cluster::Status { operators, ..cluster::Status::default() });
    Cluster::from_object(&object).unwrap()
}

fn patch(body: Value) -> AdminPatch {
    let Value::Object(fields) = body else { panic!("an object") };
    AdminPatch::from_payload(&kafka(), &Payload(fields)).unwrap()
}

fn apply(body: Value, instance: &Instance) -> Result<(Instance, Option<Event>)> {
    patch(body).apply(&kafka(), instance, Some(&cluster()), Timestamp(1_000))
}

fn error(body: Value, instance: &Instance) -> (u32, String) {
    let failure = apply(body, instance).unwrap_err();
    (code_of(&failure).number(), failure.to_string())
}

#[test]
fn at_least_one_field_is_needed_and_all_are_named() {
    let error =
        patch(json!({"kafka_version": "", "other": 1})).check_not_empty(&kafka()).unwrap_err();
    assert_eq!(code_of(&error), ErrorCode::Field);
    assert_eq!(
        error.to_string(),
        "Field validation failed: failed to update Kafka Request. Expecting at least one of the \
         following fields: strimzi_version, kafka_version, kafka_ibp_version, \
         max_data_retention_size or suspended to be provided"
    );
    patch(json!({"suspended": false})).check_not_empty(&kafka()).unwrap();
    let text = include_str!("../../../../kinds/dinosaur.yaml");
    let dinosaur = Kind::read("dinosaur.yaml", text).unwrap();
    let error = AdminPatch::default().check_not_empty(&dinosaur).unwrap_err().to_string();
    assert!(error.contains("dinosaur_operator_version, dinosaur_version or suspended"), "{error}");
}

#[test]
fn a_version_must_be_offered_by_an_operator_that_is_ready() {
    let ready = instance(Phase::Ready);
    let (next, event) = apply(json!({"kafka_version": "3.0.0"}), &ready).unwrap();
    assert_eq!((next.spec.versions["kafka"].as_str(), event), ("3.0.0", None));
    assert_eq!(next.spec.versions["strimzi"], "v1", "the others stay");
    assert_eq!(
        error(json!({"kafka_version": "2.0.0"}), &ready),
        (8, "unable to update kafka: k1 with kafka version: 2.0.0".into())
    );
    for operator in ["v2", "v3"] {
        let why = format!("unable to update kafka: k1 with strimzi version: {operator}");
        assert_eq!(error(json!({"strimzi_version": operator}), &ready), (8, why));
    }
    let nowhere = patch(json!({"kafka_version": "3.0.0"}));
    let error = nowhere.apply(&kafka(), &ready, None, Timestamp(0)).unwrap_err();
    assert_eq!(error.to_string(), "unable to get cluster for kafka k1");
}

#[test]
fn major_and_minor_never_go_down_and_the_protocol_stays_below_the_broker() {
    let ready = instance(Phase::Ready);
    let (code, why) = error(json!({"kafka_version": "2.7.0"}), &ready);
    assert_eq!(code, 8);
    assert!(why.contains("downgrade"), "{why}");
    assert!(error(json!({"kafka_ibp_version": "2.7"}), &ready).1.contains("downgrade"));
    assert!(apply(json!({"kafka_version": "2.8.1"}), &ready).is_ok(), "a patch level may go down");
    let (code, why) = error(json!({"kafka_ibp_version": "3.0"}), &ready);
    assert_eq!(code, 8);
    assert!(why.ends_with("kafkaIbp version: 3.0 with kafka version: 2.8.2"), "{why}");
    assert!(apply(json!({"kafka_version": "3.0.0", "kafka_ibp_version": "3.0"}), &ready).is_ok());
}

#[test]
fn nothing_can_be_patched_during_an_upgrade() {
    let mut busy = instance(Phase::Ready);
    busy.status.upgrading = vec!["kafka".into()];
    let (code, why) = error(json!({"kafka_version": "3.0.0"}), &busy);
    assert_eq!(
        (code, why.as_str()),
        (8, "unable to update kafka version. Another upgrade is already in progress")
    );
    assert!(
        apply(json!({"kafka_version": "2.8.2"}), &busy).is_ok(),
        "its own version may be requested again"
    );
    for phase in [Phase::Accepted, Phase::Deprovision, Phase::Deleting] {
        let (code, why) = error(json!({"max_data_retention_size": "2000Gi"}), &instance(phase));
        assert_eq!(code, 8);
        assert!(
            why.starts_with(&format!("unable to update kafka in {} status", phase.label())),
            "{why}"
        );
    }
}

#[test]
fn values_that_grow_never_shrink() {
    let ready = instance(Phase::Ready);
    let (next, _) = apply(json!({"max_data_retention_size": "1100Gi"}), &ready).unwrap();
    assert_eq!(next.spec.raised["max_data_retention_size"], json!("1100Gi"));
    let (code, why) = error(json!({"max_data_retention_size": "1050Gi"}), &next);
    assert_eq!(code, 37);
    assert!(
        why.ends_with("Requested size: '1050Gi' should be greater than current size: '1100Gi'"),
        "{why}"
    );
    assert_eq!(error(json!({"max_data_retention_size": "much"}), &ready).0, 37);
    let (same, _) = apply(json!({"max_data_retention_size": "1000Gi"}), &ready).unwrap();
    assert_eq!(same, ready, "the same size changes nothing");
}

#[test]
fn only_ready_instances_are_suspended_and_only_suspended_ones_resume() {
    for phase in CHANGEABLE {
        let one = instance(phase);
        let on = apply(json!({"suspended": true}), &one);
        let off = apply(json!({"suspended": false}), &one);
        assert_eq!(on.is_ok_and(|(_, event)| event == Some(Event::Suspend)), phase == Phase::Ready);
        assert_eq!(
            off.is_ok_and(|(_, event)| event == Some(Event::Resume)),
            phase == Phase::Suspended
        );
    }
    assert_eq!(
        error(json!({"suspended": true}), &instance(Phase::Suspending)),
        (
            8,
            "kafka instance with a status of \"suspending\" cannot be suspended. Kafka instances \
             can only be suspended in the following states: [ready]"
                .into()
        )
    );
}

#[test]
fn an_instance_in_its_grace_period_cannot_resume() {
    let day_ms = 86_400_000;
    let mut suspended = instance(Phase::Suspended);
    suspended.spec.expires_at = Some(Timestamp(4 * day_ms));
    let (code, why) = error(json!({"suspended": false}), &suspended);
    assert_eq!(code, 8);
    assert!(why.contains("grace period"), "{why}");
    suspended.spec.expires_at = Some(Timestamp(5 * day_ms));
    assert!(apply(json!({"suspended": false}), &suspended).is_ok());
}
