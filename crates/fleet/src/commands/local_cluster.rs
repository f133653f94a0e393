//! Registers this machine as a cluster.

use std::collections::BTreeMap;

use kernel::change::{EventDraft, Wake};
use kernel::{Change, Json, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::cluster::{self, LOCAL_ID, Operator, Phase, Provider, Spec, Status};
use crate::store::clusters;

/// Writes the object of the local cluster with the kinds and versions that this process runs.
pub async fn register(fleet: &Fleet) -> Result<()> {
    let catalogue = fleet.catalogue();
    let operators = catalogue.kinds.values().filter_map(|kind| {
        let versions = kind.file.versions.as_ref()?;
        let components = versions.components.keys();
        let components = components.map(|component| (component.clone(), vec!["local".to_owned()]));
        let operator =
            Operator { version: "local".into(), ready: true, components: components.collect() };
        Some((kind.name().to_owned(), vec![operator]))
    });
    let operators: BTreeMap<String, Vec<Operator>> = operators.collect();
    let kinds = catalogue.kinds.values().filter(|kind| kind.file.local.is_some());
    let spec = Spec {
        provider: Provider::Local,
        multi_az: true,
        schedulable: true,
        limit: Some(fleet.config.local.units_max),
        kinds: kinds.map(|kind| kind.name().into()).collect(),
        ..Spec::default()
    };
    let key = cluster::key(LOCAL_ID);
    let registered = |stored: Option<&Object>, now: Timestamp| {
        let ready = Phase::Ready.label();
        let new = || Object::new(key.clone(), "", "mainstay", "this machine", ready, now);
        let mut object = stored.cloned().unwrap_or_else(new);
        let since =
            stored.map_or(now, |object| object.status.parse::<Status>().unwrap_or_default().since);
        object.phase = ready.into();
        object.spec = Json::encode(&spec);
        object.status =
            Json::encode(&Status { since, operators: operators.clone(), ..Status::default() });
        object.deleted_at = None;
        if stored.is_some_and(|stored| *stored == object) {
            return Ok((None, ()));
        }
        object.updated_at = now;
        let change = Change {
            event: Some(EventDraft::for_object(&object, ready)),
            write: Some(clusters::write(object, stored)),
            wakes: vec![Wake::new(key.clone(), "", now)],
            ..Change::default()
        };
        Ok((Some(change), ()))
    };
    fleet.edit(&key, registered).await
}
