//! What members of an organisation are shown of the fleet's objects by the generic routes: what the
//! kinds' own APIs show, and nothing of how the fleet runs it.

use std::sync::Arc;

use kernel::identity::Principal;
use kernel::kind::{KindInfo, KindSource, Part, Presenter};
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
        let part = FleetPart { fleet: self.0.clone(), shown };
        Some(KindInfo::new(name, &plural, Presenter::Part(Arc::new(part))))
    }
}

/// What is shown of one kind, to those who have access to the service.
struct FleetPart {
    fleet: Arc<Fleet>,
    shown: Shown,
}

impl Part for FleetPart {
    fn allows(&self, who: &Principal) -> bool {
        access::check(&self.fleet.catalogue(), who).is_ok()
    }

    fn of(&self, object: &Object) -> Option<Object> {
        let mut object = object.clone();
        object.spec = part(&object.spec, self.shown.spec)?;
        object.status = part(&object.status, self.shown.status)?;
        Some(object)
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

fn part(json: &Json, fields: &[&str]) -> Option<Json> {
    let mut all = json.parse::<Map<String, Value>>().ok()?;
    all.retain(|name, _| fields.contains(&name.as_str()));
    Some(Json::encode(&all))
}
