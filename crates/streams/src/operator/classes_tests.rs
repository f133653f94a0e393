//! Which classes are followed, and what they say of it.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::classes::{Classes, Sight, Step};
use super::standing::{ClassPhase, Standing, standing};
use crate::cluster::{Object, Refused, Told};
use crate::index::Index;
use crate::model::Line;
use crate::model::class::Class;

fn class(name: &str, version: u32, spec: serde_json::Value) -> Class {
    let raw = json!({
        "metadata": { "name": name, "uid": format!("{name}-uid"), "resourceVersion": version.to_string() },
        "spec": spec,
    });
    Class::of(serde_json::from_value(raw).unwrap(), Line::V1)
}

fn of_kind(name: &str, version: u32, kind: &str) -> Class {
    class(name, version, json!({ "apiVersion": "v1", "kindRef": kind, "pluralName": kind }))
}

fn told(classes: &mut Classes, all: Vec<Class>) -> Vec<Step> {
    let objects = all.into_iter().map(Object::Class).collect();
    classes.told(Line::V1, Told::All(objects));
    classes.steps(&CancellationToken::new())
}

fn names(steps: &[Step]) -> Vec<String> {
    let name = |step: &Step| match step {
        Step::Follow(class, _) => format!("follow {} {}", class.name, class.kind),
        Step::Leave(class) => format!("leave {} {}", class.name, class.kind),
        Step::Renew(class, _) => format!("renew {} {}", class.name, class.kind),
    };
    steps.iter().map(name).collect()
}

fn stands(classes: &Classes, name: &str) -> Option<Standing> {
    let class = classes.get(name).unwrap().clone();
    standing(&class, classes, &Index::default(), None, jiff::Timestamp::UNIX_EPOCH)
}

#[test]
fn edits_are_followed_and_what_is_the_same_is_left_alone() {
    let mut classes = Classes::default();
    let steps = told(&mut classes, vec![of_kind("a", 1, "A")]);
    assert_eq!(names(&steps), ["follow a A"]);
    assert_eq!(names(&told(&mut classes, vec![of_kind("a", 2, "A")])), Vec::<String>::new());
    let steps = told(&mut classes, vec![of_kind("a", 3, "B")]);
    assert_eq!(names(&steps), ["leave a A", "follow a B"]);
    let spec = json!({
        "apiVersion": "v1", "kindRef": "B", "pluralName": "B", "secretRefs": ["secret"],
    });
    assert_eq!(names(&told(&mut classes, vec![class("a", 4, spec)])), ["renew a B"]);
    assert_eq!(names(&told(&mut classes, Vec::new())), ["leave a B"]);
}

#[test]
fn of_two_with_one_kind_the_one_that_is_followed_stays_and_the_other_says_why_it_is_not() {
    let mut classes = Classes::default();
    told(&mut classes, vec![of_kind("b", 1, "K")]);
    let steps = told(&mut classes, vec![of_kind("a", 2, "K"), of_kind("b", 1, "K")]);
    assert_eq!(names(&steps), Vec::<String>::new());
    let second = stands(&classes, "a").unwrap();
    assert_eq!((second.phase, second.reason), (ClassPhase::Failed, "KindTaken"));
    assert!(second.message.contains("StreamClass b"), "{}", second.message);
    let steps = told(&mut classes, vec![of_kind("a", 2, "K")]);
    assert_eq!(names(&steps), ["leave b K", "follow a K"]);
}

#[test]
fn a_class_says_what_is_missing() {
    let mut classes = Classes::default();
    let half = class("half", 1, json!({ "apiVersion": "v1", "kindRef": "K" }));
    let steps = told(&mut classes, vec![half, of_kind("a", 1, "A")]);
    assert_eq!(names(&steps), ["follow a A"]);
    let half = stands(&classes, "half").unwrap();
    assert_eq!(half.phase, ClassPhase::Failed);
    assert_eq!(half.message, "spec.pluralName is empty: the plural in the kind's CRD");
    assert_eq!(stands(&classes, "a"), None, "nothing is known yet");
    let stop = CancellationToken::new();
    assert!(classes.sees("a", &stop, Sight::Trouble(Refused::NotFound)));
    let missing = stands(&classes, "a").unwrap();
    assert_eq!((missing.phase, missing.reason), (ClassPhase::Pending, "KindMissing"));
    let away = Sight::Trouble(Refused::Away("x".into()));
    classes.sees("a", &stop, away);
    assert_eq!(stands(&classes, "a"), None, "that passes, and is not written");
    classes.sees("a", &stop, Sight::Clear);
    assert_eq!(stands(&classes, "a").unwrap().phase, ClassPhase::Ready);
    stop.cancel();
    assert!(!classes.sees("a", &stop, Sight::Unknown), "of a watch that has been replaced");
}

#[test]
fn a_class_that_the_existing_operator_left_ready_is_not_written_to() {
    let mut ready = of_kind("a", 1, "A");
    ready.phase = "Ready".into();
    let mut classes = Classes::default();
    told(&mut classes, vec![ready.clone()]);
    classes.sees("a", &CancellationToken::new(), Sight::Clear);
    let standing = stands(&classes, "a").unwrap();
    assert!(standing.is_of(&ready));
    ready.message = "There is no CustomResourceDefinition".into();
    assert!(!standing.is_of(&ready), "an old complaint is taken back");
    let reasons = |class: &Class| -> Vec<&str> {
        standing.events(class).iter().map(|happened| happened.reason).collect()
    };
    assert_eq!(reasons(&of_kind("a", 1, "A")), ["StreamClassCreated", "StreamClassReady"]);
    ready.phase = "Failed".into();
    assert_eq!(reasons(&ready), ["StreamClassRecovered"]);
}
