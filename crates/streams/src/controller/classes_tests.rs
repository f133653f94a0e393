//! Tests which classes are watched and what their status is.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::classes::{Classes, WatchChange};
use crate::decide::class::{ClassFacts, ClassPhase, ClassStatus, class_status};
use crate::model::CrdVersion;
use crate::model::class::Class;
use crate::model::watch::{ApiError, Object, WatchEvent, WatchState};

fn class(name: &str, version: u32, spec: serde_json::Value) -> Class {
    let raw = json!({
        "metadata": { "name": name, "uid": format!("{name}-uid"), "resourceVersion": version.to_string() },
        "spec": spec,
    });
    Class::of(&serde_json::from_value(raw).unwrap(), CrdVersion::V1)
}

fn of_kind(name: &str, version: u32, kind: &str) -> Class {
    class(name, version, json!({ "apiVersion": "v1", "kindRef": kind, "pluralName": kind }))
}

fn apply_list(classes: &mut Classes, all: Vec<Class>) -> Vec<WatchChange> {
    let objects = all.into_iter().map(Object::Class).collect();
    classes.apply(CrdVersion::V1, WatchEvent::Snapshot(objects));
    classes.watch_changes(&CancellationToken::new())
}

fn names(watch_changes: &[WatchChange]) -> Vec<String> {
    let name = |step: &WatchChange| match step {
        WatchChange::Start(class, _) => format!("follow {} {}", class.name, class.kind),
        WatchChange::Stop(class) => format!("leave {} {}", class.name, class.kind),
        WatchChange::Restart(class, _) => format!("renew {} {}", class.name, class.kind),
    };
    watch_changes.iter().map(name).collect()
}

fn status_of(classes: &Classes, name: &str) -> Option<ClassStatus> {
    let class = classes.get(name).unwrap().clone();
    class_status(ClassFacts {
        class: &class,
        watch: classes.watched(name).map(|watched| &watched.state),
        conflicting_class: classes.conflicting_class(&class).map(|other| &**other),
        blocked: None,
        foreign_writer: None,
        other_quiet_s: 60,
    })
}

#[test]
fn edits_change_the_watches_and_equal_classes_do_not() {
    let mut classes = Classes::default();
    let watch_changes = apply_list(&mut classes, vec![of_kind("a", 1, "A")]);
    assert_eq!(names(&watch_changes), ["follow a A"]);
    assert_eq!(names(&apply_list(&mut classes, vec![of_kind("a", 2, "A")])), Vec::<String>::new());
    let watch_changes = apply_list(&mut classes, vec![of_kind("a", 3, "B")]);
    assert_eq!(names(&watch_changes), ["leave a A", "follow a B"]);
    let spec = json!({
        "apiVersion": "v1", "kindRef": "B", "pluralName": "B", "secretRefs": ["secret"],
    });
    assert_eq!(names(&apply_list(&mut classes, vec![class("a", 4, spec)])), ["renew a B"]);
    assert_eq!(names(&apply_list(&mut classes, Vec::new())), ["leave a B"]);
}

#[test]
fn of_two_classes_with_one_kind_the_watched_one_stays_and_the_other_reports_why() {
    let mut classes = Classes::default();
    apply_list(&mut classes, vec![of_kind("b", 1, "K")]);
    let watch_changes = apply_list(&mut classes, vec![of_kind("a", 2, "K"), of_kind("b", 1, "K")]);
    assert_eq!(names(&watch_changes), Vec::<String>::new());
    let second = status_of(&classes, "a").unwrap();
    assert_eq!((second.phase, second.reason), (ClassPhase::Failed, "KindTaken"));
    assert!(second.message.contains("StreamClass b"), "{}", second.message);
    let watch_changes = apply_list(&mut classes, vec![of_kind("a", 2, "K")]);
    assert_eq!(names(&watch_changes), ["leave b K", "follow a K"]);
}

#[test]
fn a_class_reports_what_is_missing() {
    let mut classes = Classes::default();
    let half = class("half", 1, json!({ "apiVersion": "v1", "kindRef": "K" }));
    let watch_changes = apply_list(&mut classes, vec![half, of_kind("a", 1, "A")]);
    assert_eq!(names(&watch_changes), ["follow a A"]);
    let half = status_of(&classes, "half").unwrap();
    assert_eq!(half.phase, ClassPhase::Failed);
    assert_eq!(half.message, "spec.pluralName is empty: the plural in the kind's CRD");
    assert_eq!(status_of(&classes, "a"), None, "nothing is known yet");
    let stop = CancellationToken::new();
    assert!(classes.set_watch_state("a", &stop, WatchState::Failed(ApiError::NotFound)));
    let missing = status_of(&classes, "a").unwrap();
    assert_eq!((missing.phase, missing.reason), (ClassPhase::Pending, "KindMissing"));
    let away = WatchState::Failed(ApiError::Unreachable("x".into()));
    classes.set_watch_state("a", &stop, away);
    assert_eq!(status_of(&classes, "a"), None, "that passes, and is not written");
    classes.set_watch_state("a", &stop, WatchState::Synced);
    assert_eq!(status_of(&classes, "a").unwrap().phase, ClassPhase::Ready);
    stop.cancel();
    assert!(
        !classes.set_watch_state("a", &stop, WatchState::Unknown),
        "of a watch that has been replaced"
    );
}

#[test]
fn a_class_that_is_ready_is_not_written() {
    let mut ready = of_kind("a", 1, "A");
    ready.phase = "Ready".into();
    let mut classes = Classes::default();
    apply_list(&mut classes, vec![ready.clone()]);
    classes.set_watch_state("a", &CancellationToken::new(), WatchState::Synced);
    let class_status = status_of(&classes, "a").unwrap();
    assert!(class_status.is_of(&ready));
    ready.message = "There is no CustomResourceDefinition".into();
    assert!(!class_status.is_of(&ready), "an old complaint is taken back");
    let reasons = |class: &Class| -> Vec<&str> {
        class_status.events(class).iter().map(|event| event.reason).collect()
    };
    assert_eq!(reasons(&of_kind("a", 1, "A")), ["StreamClassCreated", "StreamClassReady"]);
    ready.phase = "Failed".into();
    assert_eq!(reasons(&ready), ["StreamClassRecovered"]);
}
