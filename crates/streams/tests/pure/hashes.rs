//! Tests that hashes equal those of the existing operator.

use proptest::prelude::*;
use serde_json::{Value, json};
use streams::model::NamespacedName;
use streams::model::backfill_request::{BackfillRequest, RawBackfillRequest};
use streams::model::hash::{
    canonical_digest, checksum, combined, go_compatible_json, hex, md5_hex,
};

fn hash(spec: &Value) -> String {
    md5_hex(go_compatible_json(spec).as_bytes())
}

fn first() -> Value {
    json!({
        "suspended": false,
        "source": "sourceA",
        "jobTemplateRef": { "namespace": "default", "name": "jobTemplate1" },
        "destination": "destinationB",
        "backfillJobTemplateRef": { "name": "backfillJobTemplate1", "namespace": "default" },
    })
}

fn request() -> BackfillRequest {
    let raw = json!({
        "metadata": { "name": "b", "namespace": "n" },
        "spec": { "streamClass": "stream-class", "streamId": "stream1" },
    });
    let raw: RawBackfillRequest = serde_json::from_value(raw).unwrap();
    BackfillRequest::of(&raw)
}

#[test]
fn known_values_have_known_hashes() {
    assert_eq!(hash(&first()), "c570476a5d23a0f1a20a07de28983510");
    let odd = json!({ "q": "a<b && c>d", "n": 1.0 });
    assert_eq!(hash(&odd), "d40776248654bfef2b406522720e1d7e");
    let of_request = md5_hex(request().json().as_bytes());
    assert_eq!(of_request, "7896150bbbae7044099e3f847cd03a3d");
    assert_eq!(
        combined(&hash(&first()), &of_request),
        "6335373034373661356432336130663161323061303764653238393833353130:\
         3738393631353062626261653730343430393965336638343763643033613364"
    );
    assert_eq!(request().object_name, NamespacedName::new("n", "b"));
}

#[test]
fn numbers_and_strings_are_formatted_as_in_go() {
    for (value, status) in [
        ("1.0", "1"),
        ("-0.0", "0"),
        ("0.5", "0.5"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("1.5e300", "1.5e+300"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("-1.25e-9", "-1.25e-9"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775808", "9223372036854776000"),
        ("18446744073709551615", "18446744073709552000"),
        (r#""\u0000\b\f\n\r\t\u001f\u007f""#, "\"\\u0000\\b\\f\\n\\r\\t\\u001f\u{7f}\""),
        (r#""<>&\u2028\u2029""#, r#""\u003c\u003e\u0026\u2028\u2029""#),
        (r#""\"\\/é😀""#, r#""\"\\/é😀""#),
        (
            r#"{"b":1,"a":[],"é":{},"B":null,"a b":true}"#,
            r#"{"B":null,"a":[],"a b":true,"b":1,"é":{}}"#,
        ),
    ] {
        let value: Value = serde_json::from_str(value).unwrap();
        assert_eq!(go_compatible_json(&value), status);
    }
}

#[test]
fn a_checksum_is_a_prefix_of_the_hash() {
    // sha256("abc") is ba7816bf 8f01…: in base 64 `ungWv48B…`.
    assert_eq!(checksum(b"abc"), "ungwv48");
}

#[test]
fn rewrites_of_the_existing_operator_do_not_change_the_digest() {
    let mut rewritten = json!({ "execution": {
        "layoutVersion": "v1",
        "suspended": false,
        "backfillJobTemplateRef": { "kind": "StreamingJobTemplate", "name": "b", "namespace": "t" },
        "streamingBackend": { "changeCapture": { "jobTemplateRef": { "name": "s", "namespace": "t" } } },
    }, "source": { "apiGroup": "mine" } });
    let mut original = rewritten.clone();
    original["execution"]["suspended"] = json!(true);
    original["execution"]["backfillJobTemplateRef"]["apiGroup"] = json!("x");
    original["execution"]["streamingBackend"]["changeCapture"]["jobTemplateRef"]["apiGroup"] =
        json!("x");
    assert_ne!(hash(&original), hash(&rewritten));
    assert_eq!(canonical_digest(&original, &[]), canonical_digest(&rewritten, &[]));
    rewritten["source"]["apiGroup"] = json!("other");
    assert_ne!(canonical_digest(&original, &[]), canonical_digest(&rewritten, &[]));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no others", |f| f.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The rules, stated differently: the JSON has the same meaning, is sorted, and has none of the
/// characters that Go escapes.
fn keeps_the_rules(value: &Value, json: &str) {
    let read: Value = serde_json::from_str(json).unwrap();
    assert!(same(value, &read), "{value} became {json}");
    assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']));
    assert!(json.bytes().all(|byte| byte >= 0x20));
    in_order(&read);
}

fn in_order(value: &Value) {
    match value {
        Value::Object(fields) => {
            let names: Vec<&[u8]> = fields.keys().map(String::as_bytes).collect();
            assert!(names.is_sorted(), "{value}");
            fields.values().for_each(in_order);
        }
        Value::Array(items) => items.iter().for_each(in_order),
        _ => {}
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_f64() == b.as_f64(),
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

proptest! {
    #[test]
    fn every_value_is_written_by_the_rules(value in values()) {
        keeps_the_rules(&value, &go_compatible_json(&value));
    }

    #[test]
    fn the_order_of_fields_is_of_no_matter(fields in prop::collection::vec((any::<String>(), values()), 0..6)) {
        let forward: serde_json::Map<_, _> = fields.iter().rev().cloned().collect();
        let mut backward: serde_json::Map<_, _> = serde_json::Map::new();
        for (name, value) in forward.iter().rev() {
            backward.insert(name.clone(), value.clone());
        }
        prop_assert_eq!(hash(&Value::Object(forward)), hash(&Value::Object(backward)));
    }

    #[test]
    fn a_hash_twice_in_hexadecimal_can_be_read_back(a in "[0-9a-f]{32}", b in "[0-9a-f]{32}") {
        let both = combined(&a, &b);
        prop_assert_eq!(both.len(), 129);
        prop_assert_eq!(both, format!("{}:{}", hex(a.as_bytes()), hex(b.as_bytes())));
    }
}
