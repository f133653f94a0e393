//! Validates the registration of a cluster, in the order that clients expect.

use kernel::Result;

use crate::model::error_code::ErrorCode;
use crate::model::payload::{Payload, check_length};

const ID_LENGTH: usize = 32;
const ID_PATTERN: &str = "^[a-zA-Z0-9]*$";
const DNS_PATTERN: &str =
    r"^(?:[_a-z0-9](?:[_a-z0-9-]{0,61}[a-z0-9])?\.)+(?:[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)?$";
/// One node for each zone.
const NODES_MIN: i64 = 3;

/// A valid registration.
#[derive(Debug, PartialEq)]
pub struct ClusterRegistration {
    pub id: String,
    pub dns_name: String,
    pub nodes: i64,
    pub private_network: bool,
}

pub fn check(body: &Payload) -> Result<ClusterRegistration> {
    let id = body.text("cluster_id")?.unwrap_or_default().to_owned();
    let dns_name = body.text("cluster_ingress_dns_name")?.unwrap_or_default().to_owned();
    let nodes = body.integer("kafka_machine_pool_node_count")?.unwrap_or(0);
    let private_network = body.boolean("access_kafkas_via_private_network")?;
    check_length("cluster id", &id, ID_LENGTH, ID_LENGTH)?;
    if !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(ErrorCode::ClusterId.error(format!("cluster id does not match {ID_PATTERN}")));
    }
    if !is_dns_name(&dns_name) {
        return Err(
            ErrorCode::DnsName.error(format!("cluster dns name does not match {DNS_PATTERN}"))
        );
    }
    let wrong = |why: &str| {
        Err(ErrorCode::Field.error(format!(
            "Field validation failed: failed to register cluster. Kafka machine pool node count: \
             {nodes} should be {why}"
        )))
    };
    if nodes < NODES_MIN {
        return wrong("greater or equal to 3");
    }
    if nodes % NODES_MIN != 0 {
        return wrong("in multiple of 3");
    }
    let Some(private_network) = private_network else {
        let why = "Field validation failed: access_kafkas_via_private_network is required";
        return Err(ErrorCode::Field.error(why));
    };
    Ok(ClusterRegistration { id, dns_name, nodes, private_network })
}

/// Whether this is a DNS name: labels with dots between them; the last may be empty, and begins with
/// a letter if it is not.
fn is_dns_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase();
    let end = |b: u8| letter(b) || b.is_ascii_digit();
    let label = |text: &str, first: &dyn Fn(u8) -> bool, middle: &dyn Fn(u8) -> bool| match text
        .as_bytes()
    {
        [] => false,
        [one] => first(*one),
        [begin, inner @ .., last] => {
            text.len() <= 63 && first(*begin) && end(*last) && inner.iter().all(|b| middle(*b))
        }
    };
    let Some((labels, top)) = name.rsplit_once('.') else { return false };
    let low = |b: u8| end(b) || b == b'_';
    let low_inner = |b: u8| low(b) || b == b'-';
    labels.split('.').all(|text| label(text, &low, &low_inner))
        && (top.is_empty() || label(top, &letter, &|b| end(b) || b == b'-'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::error_code::code_of;

    fn asked(change: &[(&str, Value)]) -> Result<ClusterRegistration> {
        let mut body = json!({
            "cluster_id": "0123456789abcdefghijklmnopqrstuV",
            "cluster_ingress_dns_name": "apps.example.com",
            "kafka_machine_pool_node_count": 3,
            "access_kafkas_via_private_network": false,
        });
        for (name, value) in change {
            body[*name] = value.clone();
        }
        let Value::Object(fields) = body else { unreachable!() };
        check(&Payload(fields))
    }

    fn says(change: &[(&str, Value)]) -> (u32, String) {
        let error = asked(change).unwrap_err();
        (code_of(&error).number(), error.to_string())
    }

    #[test]
    fn every_field_is_checked_with_its_code() {
        assert_eq!(asked(&[]).unwrap().nodes, 3);
        let short = "cluster id is not valid, minimum length 32 is required";
        assert_eq!(says(&[("cluster_id", json!("x"))]), (33, short.into()));
        assert_eq!(says(&[("cluster_id", json!(null))]).0, 33);
        assert_eq!(says(&[("cluster_id", json!("x".repeat(33)))]).0, 34);
        assert_eq!(says(&[("cluster_id", json!("0123456789abcdefghijklmnopqrstu-"))]).0, 45);
        assert_eq!(says(&[("cluster_id", json!(5))]).0, 17);
        assert_eq!(says(&[("cluster_ingress_dns_name", json!(".."))]).0, 47);
        let nodes = |n: i64| says(&[("kafka_machine_pool_node_count", json!(n))]);
        assert_eq!(
            nodes(4),
            (
                37,
                "Field validation failed: failed to register cluster. Kafka machine pool node \
                 count: 4 should be in multiple of 3"
                    .into()
            )
        );
        assert!(nodes(2).1.ends_with("should be greater or equal to 3"));
        assert_eq!(says(&[("access_kafkas_via_private_network", json!(null))]).0, 37);
        let both = [("cluster_ingress_dns_name", json!("..")), ("cluster_id", json!("x"))];
        assert_eq!(says(&both).0, 33, "the id comes first");
    }

    #[test]
    fn dns_names_are_what_the_pattern_says() {
        for good in
            ["apps.example.com", "a.b", "_a-b.c1", "a.", "1.x", &format!("{}.com", "a".repeat(63))]
        {
            assert!(is_dns_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a",
            "appsexamplecom",
            "-a.b",
            "a-.b",
            "A.b",
            "a.1b",
            "a.b-",
            "a_.b",
            "a.b c",
            "a.b_",
            &format!("{}.com", "a".repeat(64)),
        ] {
            assert!(!is_dns_name(bad), "{bad}");
        }
    }
}
