//! Refused targets, in every notation.

use super::*;

fn egress(allowed: &[&str], answer: &'static [&'static str]) -> EgressPolicy {
    let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
    let lookup: Lookup = Arc::new(move |_| {
        std::future::ready(Ok(answer.iter().map(|ip| ip.parse().unwrap()).collect())).boxed()
    });
    EgressPolicy::new(&allowed, lookup).unwrap()
}

#[tokio::test]
async fn every_notation_of_an_inner_address_is_refused() {
    let egress = egress(&[], &["93.184.216.34"]);
    for bad in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://100.100.100.200/",
        "http://169.254.169.254/latest/meta-data/",
        "http://168.63.129.16/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::]/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:8.8.8.8]/",
        "http://[::7f00:1]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://[ff02::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001:0:1::]/",
        "http://[2001:db8::1]/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://user:pass@example.com/",
        "https://user@example.com/",
        "nonsense",
        "",
    ] {
        let error = egress.check("webhook.url", bad).await.expect_err(bad);
        assert!(matches!(&error, Error::Invalid { field, .. } if field == "webhook.url"), "{bad}");
    }
    for good in ["https://example.com/hook?x=1", "http://8.8.8.8:8080/", "https://[2606:4700::1]/"]
    {
        assert_eq!(egress.check("webhook.url", good).await.unwrap().as_str(), good);
    }
}

#[tokio::test]
async fn a_name_is_refused_if_any_of_its_addresses_is() {
    let mixed = egress(&[], &["93.184.216.34", "127.0.0.1"]);
    let message = mixed.check("url", "https://mixed.example/").await.unwrap_err().to_string();
    assert!(message.contains("mixed.example") && message.contains("127.0.0.1"), "{message}");
    let nowhere = egress(&[], &[]);
    assert!(nowhere.check("url", "https://nowhere.example/").await.is_err());
}

#[tokio::test]
async fn the_configuration_can_allow_hosts_addresses_and_networks() {
    let egress = egress(&["hooks.internal", "10.1.0.0/16", "::1"], &["192.168.0.9"]);
    for good in
        ["http://hooks.internal/", "http://HOOKS.internal/", "http://10.1.2.3/", "http://[::1]:9/"]
    {
        assert!(egress.check("url", good).await.is_ok(), "{good}");
    }
    for bad in ["http://other.internal/", "http://10.2.0.1/", "http://127.0.0.1/", "http://[::2]/"]
    {
        assert!(egress.check("url", bad).await.is_err(), "{bad}");
    }
    for bad in ["10.0.0.0/33", "a/8", "10.0.0.0/x", "", "with space"] {
        assert!(EgressPolicy::new(&[bad.to_owned()], system_lookup()).is_err(), "{bad}");
    }
}

#[test]
fn a_network_of_prefix_zero_covers_all_of_its_family() {
    let all_v4 = Allowed::parse("0.0.0.0/0").unwrap();
    assert!(all_v4.covers("127.0.0.1".parse().unwrap()));
    assert!(!all_v4.covers("::1".parse().unwrap()));
    assert!(Allowed::parse("::/0").unwrap().covers("fe80::1".parse().unwrap()));
}
