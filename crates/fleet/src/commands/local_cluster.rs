//! Registers this machine as a cluster.

use std::collections::BTreeMap;

use kernel::change::Wake;
use kernel::{Change, Draft, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::cluster::{self, LOCAL_ID, Operator, Phase, Provider, Spec, Status};

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
        let new = || Draft::new(key.clone(), "", "mainstay", "this machine", now);
        let since =
            stored.map_or(now, |object| object.status.parse::<Status>().unwrap_or_default().since);
        let status = Status { since, operators: operators.clone(), ..Status::default() };
        let draft = stored.map_or_else(new, Draft::of);
        let draft = draft.phase(&Phase::Ready).spec(&spec).status(&status);
        if !draft.is_changed() && stored.is_some_and(|object| object.deleted_at.is_none()) {
            return Ok((None, ()));
        }
        let wakes = vec![Wake::new(key.clone(), "", now)];
        let write = draft.respec(Phase::Ready.label(), now);
        let change = Change { wakes, ..Change::from(write) };
        Ok((Some(change), ()))
    };
    fleet.edit(&key, registered).await
}
