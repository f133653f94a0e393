//! Autoscaling: adds a cluster where a region is short of capacity, and removes one that is spare.

use std::time::Duration;

use kernel::change::Take;
use kernel::{Error, Refusal, Result};

use crate::Fleet;
use crate::decide::cluster::plan::ScaleDown;
use crate::decide::cluster::scaling::{RegionDemand, ScaleUp, counter, is_needed, scale_up_reason};
use crate::model::cluster::{Cluster, Phase, Provider, Spec};
use crate::model::instance::Instance;
use crate::model::kind::Kind;
use crate::model::providers::Offer;
use crate::model::settings::Scaling;
use crate::store::clusters::NewCluster;

/// The cluster that the region of an instance needs for its placement.
pub fn scale_up(fleet: &Fleet, kind: &Kind, instance: &Instance) -> Option<ScaleUp> {
    let spec = &instance.spec;
    if fleet.config.scaling != Scaling::Auto || !spec.own_cluster_id.is_empty() {
        return None;
    }
    let (cloud_provider, region, instance_type) =
        (&spec.cloud_provider, &spec.region, &spec.instance_type);
    let (demand, offer) = demand(fleet, kind, cloud_provider, region, instance_type)?;
    let demand = RegionDemand { placing: spec.units, ..demand };
    let why = scale_up_reason(&demand, &offer, &fleet.index.candidates(instance_type))?;
    Some(ScaleUp {
        cloud_provider: cloud_provider.clone(),
        region: region.clone(),
        instance_type: instance_type.clone(),
        multi_az: demand.multi_az,
        why,
    })
}

fn demand<'a>(
    fleet: &Fleet,
    kind: &'a Kind,
    cloud_provider: &'a str,
    region: &'a str,
    instance_type: &'a str,
) -> Option<(RegionDemand<'a>, Offer)> {
    let catalogue = fleet.catalogue();
    let offer = catalogue.providers.cloud(cloud_provider)?.region(region)?.offer(instance_type)?;
    let ty = kind.file.instance_type(instance_type)?;
    let demand = RegionDemand {
        kind: kind.name(),
        cloud_provider,
        region,
        instance_type,
        multi_az: ty.multi_az,
        biggest: ty.sizes.last().map_or(1, |size| size.units),
        used: fleet.index.used_in_region(kind.name(), cloud_provider, region, instance_type),
        placing: 0,
    };
    Some((demand, offer))
}

/// Whether a cluster may be deleted: autoscaling created it, it is empty, and no region needs it.
pub fn scale_down_state(fleet: &Fleet, cluster: &Cluster, instances: usize) -> ScaleDown {
    let is_candidate = fleet.config.scaling == Scaling::Auto
        && cluster.spec.dynamic
        && cluster.phase == Phase::Ready
        && instances == 0;
    if !is_candidate {
        return ScaleDown::Never;
    }
    let catalogue = fleet.catalogue();
    let spec = &cluster.spec;
    let needed = catalogue.kinds.values().any(|kind| {
        let types = kind.file.types.iter().filter(|ty| spec.takes(kind.name(), &ty.id));
        types.into_iter().any(|ty| {
            let found = demand(fleet, kind, &spec.cloud_provider, &spec.region, &ty.id);
            found.is_some_and(|(demand, offer)| {
                // A region without instances that must keep nothing free needs no cluster.
                let idle =
                    demand.used == 0 && offer.min_available_capacity_slack_streaming_units == 0;
                !idle && is_needed(&cluster.id, &demand, &offer, &fleet.index.candidates(&ty.id))
            })
        })
    });
    let idle = Duration::from_secs(fleet.config.dynamic.idle_s);
    if needed {
        ScaleDown::Needed { idle }
    } else {
        ScaleDown::After { idle, dry_run: !fleet.config.dynamic.scale_down }
    }
}

/// Creates a cluster, unless one is already in progress; a dry run only logs.
pub async fn create_cluster(fleet: &Fleet, scale_up: &ScaleUp) -> Result<()> {
    let ScaleUp { cloud_provider, region, instance_type, multi_az, why } = scale_up;
    if !fleet.config.dynamic.scale_up {
        tracing::info!(
            cloud_provider,
            region,
            instance_type,
            why,
            "dry run: would create a cluster"
        );
        return Ok(());
    }
    let now = fleet.ambient.now();
    let id = fleet.ambient.id();
    let spec = Spec {
        provider: Provider::Terraform,
        cloud_provider: cloud_provider.clone(),
        region: region.clone(),
        multi_az: *multi_az,
        schedulable: true,
        limit: fleet.config.dynamic.instance_limit,
        instance_types: vec![instance_type.clone()],
        dynamic: true,
        ..Spec::default()
    };
    let name = format!("{region}-{id}");
    let new = NewCluster {
        id: &id,
        owner: "mainstay",
        name: &name,
        spec,
        reason: why,
        ..NewCluster::default()
    };
    let (object, mut change) = new.register(None, now);
    change.takes.push(Take {
        counter: counter(cloud_provider, region, instance_type),
        holder: object.key.to_string(),
        amount: 1,
        limit: 1,
    });
    match fleet.commit(change, now).await {
        // Another reconciliation has created it.
        Err(Error::Refused(Refusal::Limit { .. })) => Ok(()),
        done => done,
    }
}
