//! What members of an organisation are shown of the fleet's objects by the generic routes: what the
//! kinds' own APIs show, and nothing of how the fleet runs it.

use std::sync::Arc;

use kernel::identity::Principal;
use kernel::kind::{KindInfo, KindSource, Presenter};
use kernel::{Json, Object};
use serde_json::{Map, Value};

use crate::Fleet;
use crate::model::{account, cluster};
use crate::store::access;

/// The fleet's kinds: those of the catalogue, clusters and service accounts.
pub struct FleetKinds(pub Arc<Fleet>);

impl KindSource for FleetKinds {
    fn find(&self, name: &str) -> Option<KindInfo> {
        let (plural, shown) = match name {
            cluster::KIND => ("clusters".into(), CLUSTER),
            account::KIND => ("service-accounts".into(), ACCOUNT),
            name => (self.0.catalogue().kind(name)?.file.plural.clone(), INSTANCE),
        };
        let fleet = self.0.clone();
        let present = move |object: &Object, who: &Principal| present(&fleet, shown, object, who);
        Some(KindInfo::new(name, &plural, Presenter::With(Arc::new(present))))
    }
}

/// The fields of spec and status that are shown.
#[derive(Clone, Copy)]
struct Shown {
    spec: &'static [&'static str],
    status: &'static [&'static str],
}

const INSTANCE: Shown = Shown {
    spec: &[
        "cloud_provider",
        "region",
        "multi_az",
        "instance_type",
        "size_id",
        "units",
        "billing_model",
        "marketplace",
        "billing_cloud_account_id",
        "own_cluster_id",
        "fields",
        "expires_at",
        "promotion",
    ],
    status: &[
        "since",
        "host",
        "address",
        "routes",
        "versions",
        "upgrading",
        "failed_reason",
        "waiting_for",
    ],
};

const CLUSTER: Shown = Shown {
    spec: &["cloud_provider", "region", "multi_az", "schedulable", "kinds", "dns_name", "deleting"],
    status: &["since"],
};

const ACCOUNT: Shown = Shown { spec: &["client_id", "deleting"], status: &[] };

fn present(fleet: &Fleet, shown: Shown, object: &Object, who: &Principal) -> Option<Object> {
    access::check(&fleet.catalogue(), who).ok()?;
    let mut object = object.clone();
    object.spec = part(&object.spec, shown.spec)?;
    object.status = part(&object.status, shown.status)?;
    Some(object)
}

fn part(json: &Json, fields: &[&str]) -> Option<Json> {
    let mut all = json.parse::<Map<String, Value>>().ok()?;
    all.retain(|name, _| fields.contains(&name.as_str()));
    Some(Json::encode(&all))
}
