//! Everyone who calls: people of three organisations, programs, agents, admins, and forgers.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use kernel::identity::builtin::{Kind, Signer};
use kernel::identity::{Config, Principal};
use kernel::{Ambient, Timestamp};

pub const URL: &str = "http://mainstay.test";

/// The organisation with quota, one with room for ten units, and one that may only have trials.
pub const ORG: &str = "13640203";
pub const SMALL_ORG: &str = "77777777";
pub const OTHER_ORG: &str = "99999999";

/// The cluster that takes instances, and one that does not.
pub const CLUSTER: &str = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1";
pub const OTHER_CLUSTER: &str = "c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2";

pub const ACCOUNT: &str = "srvc-acct-8c1a5f0e-6b0a-4f4e-9d53-0d8f1c2b3a4d";

pub const CALLERS: [&str; 17] = [
    "alice",
    "alice-as-admin",
    "bob",
    "carol",
    "mallory",
    "race",
    "no-org",
    "agent",
    "other-agent",
    "admin-read",
    "admin-write",
    "admin-full",
    "service-account",
    "expired",
    "bad-signature",
    "wrong-issuer",
    "garbage",
];

pub fn principal(name: &str) -> Principal {
    let person = |org: &str| Principal {
        subject: name.into(),
        org: org.into(),
        account: format!("acc-{name}"),
        ..Principal::default()
    };
    let agent = |cluster: &str| Principal {
        subject: format!("service-account-kas-fleetshard-agent-{cluster}"),
        client: format!("kas-fleetshard-agent-{cluster}"),
        agent_of: Some(cluster.into()),
        ..Principal::default()
    };
    match name {
        "alice" | "bob" => person(ORG),
        // Whose answers were recorded: alice, who is an admin of her organisation.
        "alice-as-admin" => Principal { org_admin: true, ..principal("alice") },
        "carol" => Principal { org_admin: true, ..person(ORG) },
        "mallory" => person(OTHER_ORG),
        "race" => person(SMALL_ORG),
        "agent" => agent(CLUSTER),
        "other-agent" => agent(OTHER_CLUSTER),
        "service-account" => Principal {
            subject: format!("service-account-{ACCOUNT}"),
            client: ACCOUNT.into(),
            ..person(ORG)
        },
        "admin-read" | "admin-write" | "admin-full" => {
            Principal { roles: [name.to_owned()].into(), ..person("") }
        }
        "no-org" => person(""),
        // A forged token claims to be of alice.
        _ => principal("alice"),
    }
}

/// A token for everyone; `dir` holds the server's key.
pub fn tokens(dir: &Path) -> HashMap<&'static str, String> {
    let elsewhere = tempfile::tempdir().unwrap();
    let config = Config::default();
    let open = |dir: &Path, url: &str, ambient| Signer::open(&config, dir, url, ambient).unwrap();
    let ours = open(dir, URL, Ambient::system());
    let before = Timestamp(Ambient::system().now().0 - 7_200_000);
    let late = open(dir, URL, Ambient::seeded(move || before, 1));
    let forger = open(elsewhere.path(), URL, Ambient::system());
    let other = open(elsewhere.path(), "http://elsewhere.test", Ambient::system());
    let hour = Duration::from_secs(3600);
    let token = |name: &'static str| {
        let signer = match name {
            "expired" => &late,
            "bad-signature" => &forger,
            "wrong-issuer" => &other,
            "garbage" => return (name, "abc".to_owned()),
            _ => &ours,
        };
        (name, signer.issue(&principal(name), "tests", hour, Kind::Access).unwrap())
    };
    CALLERS.into_iter().map(token).collect()
}
