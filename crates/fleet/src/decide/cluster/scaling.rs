//! Whether a region needs one more cluster, or has one to spare. Pure.

use crate::model::cluster::Candidate;
use crate::model::cluster::{Cluster, Phase, limit};
use crate::model::providers::Offer;

/// A cluster that a region needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleUp {
    pub cloud_provider: String,
    pub region: String,
    pub instance_type: String,
    pub multi_az: bool,
    pub why: String,
}

/// The demand of one kind and instance type in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionDemand<'a> {
    pub kind: &'a str,
    pub cloud_provider: &'a str,
    pub region: &'a str,
    pub instance_type: &'a str,
    pub multi_az: bool,
    /// Units of the largest size: there should always be capacity for one.
    pub biggest: i64,
    /// Units used in the region, including the instance being placed.
    pub used: i64,
    /// Units of the instance being placed: they are taken from the tightest fit.
    pub placing: i64,
}

/// Why the region needs one more cluster; none if it does not, or may not have one.
pub fn scale_up_reason(
    demand: &RegionDemand<'_>,
    offer: &Offer,
    all: &[Candidate],
) -> Option<String> {
    if offer.limit.is_some_and(|limit| demand.used >= limit) {
        return None;
    }
    let mut in_region = all.iter().filter(|candidate| serves(&candidate.cluster, demand));
    if in_region.any(|candidate| is_in_progress(&candidate.cluster)) {
        return None;
    }
    shortage(demand, offer, all, None)
}

/// Whether the region would be short without this cluster.
pub fn is_needed(
    cluster: &str,
    demand: &RegionDemand<'_>,
    offer: &Offer,
    all: &[Candidate],
) -> bool {
    shortage(demand, offer, all, Some(cluster)).is_some()
}

fn shortage(
    demand: &RegionDemand<'_>,
    offer: &Offer,
    all: &[Candidate],
    without: Option<&str>,
) -> Option<String> {
    let available = all.iter().filter(|candidate| {
        serves(&candidate.cluster, demand)
            && takes_new(&candidate.cluster)
            && Some(candidate.cluster.id.as_str()) != without
    });
    let mut free: Vec<i64> = available
        .map(|candidate| match limit(&candidate.cluster, demand.instance_type) {
            Some(limit) => (limit - candidate.used).max(0),
            None => i64::MAX,
        })
        .collect();
    let RegionDemand { instance_type, biggest, placing, .. } = demand;
    free.sort_unstable();
    if let Some(fit) = free.iter_mut().find(|free| **free >= *placing) {
        *fit -= placing;
    }
    if !free.iter().any(|free| free >= biggest) {
        return Some(format!("no cluster has room for {biggest} units of {instance_type}"));
    }
    let slack = offer.min_available_capacity_slack_streaming_units;
    let free = free.into_iter().fold(0_i64, i64::saturating_add);
    (free < slack).then(|| format!("{free} units of {instance_type} are free, {slack} should be"))
}

fn serves(cluster: &Cluster, demand: &RegionDemand<'_>) -> bool {
    let spec = &cluster.spec;
    let matches = |has: &str, asked: &str| has.is_empty() || has == asked;
    cluster.org.is_empty()
        && matches(&spec.cloud_provider, demand.cloud_provider)
        && matches(&spec.region, demand.region)
        && (spec.multi_az || !demand.multi_az)
        && cluster.spec.takes(demand.kind, demand.instance_type)
}

fn takes_new(cluster: &Cluster) -> bool {
    cluster.phase == Phase::Ready
        && cluster.spec.schedulable
        && !cluster.spec.deleting
        && !cluster.status.agent_lost
}

fn is_in_progress(cluster: &Cluster) -> bool {
    let early = [Phase::Accepted, Phase::Provisioning, Phase::Provisioned, Phase::Waiting];
    cluster.spec.schedulable && !cluster.spec.deleting && early.contains(&cluster.phase)
}

/// The counter that only one cluster in progress can hold, so that two concurrent reconciliations
/// create one cluster. It is released when the cluster is ready, or gone.
pub fn counter(cloud_provider: &str, region: &str, instance_type: &str) -> String {
    format!("fleet/scaling/{cloud_provider}/{region}/{instance_type}")
}

/// The counters that an autoscaled cluster may hold.
pub fn counters(cluster: &Cluster) -> impl Iterator<Item = String> + '_ {
    let spec = &cluster.spec;
    let types = spec.instance_types.iter().filter(|_| spec.dynamic);
    types.map(|ty| counter(&spec.cloud_provider, &spec.region, ty))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::{Spec, Status};
    use kernel::Timestamp;

    fn candidate(id: &str, limit: i64, used: i64, change: impl FnOnce(&mut Cluster)) -> Candidate {
        let mut cluster = Cluster {
            id: id.into(),
            kind: "cluster".into(),
            org: String::new(),
            owner: String::new(),
            name: id.into(),
            phase: Phase::Ready,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: Spec {
                cloud_provider: "aws".into(),
                region: "r1".into(),
                multi_az: true,
                schedulable: true,
                limit: Some(limit),
                ..Spec::default()
            },
            status: Status::default(),
        };
        change(&mut cluster);
        Candidate { cluster: std::sync::Arc::new(cluster), used }
    }

    fn demand() -> RegionDemand<'static> {
        RegionDemand {
            kind: "kafka",
            cloud_provider: "aws",
            region: "r1",
            instance_type: "standard",
            multi_az: true,
            biggest: 2,
            used: 3,
            placing: 0,
        }
    }

    #[test]
    fn one_more_is_needed_when_the_largest_size_does_not_fit_or_the_slack_is_used() {
        let offer = Offer::default();
        let full = [candidate("a", 5, 4, |_| {})];
        assert!(scale_up_reason(&demand(), &offer, &full).unwrap().contains("room for 2"));
        assert!(scale_up_reason(&demand(), &offer, &[]).is_some());
        let room = [candidate("a", 10, 4, |_| {})];
        assert_eq!(scale_up_reason(&demand(), &offer, &room), None);
        let placing = RegionDemand { placing: 5, ..demand() };
        assert!(
            scale_up_reason(&placing, &offer, &room).is_some(),
            "the instance being placed takes the capacity"
        );
        let slack = Offer { min_available_capacity_slack_streaming_units: 7, ..offer };
        assert!(
            scale_up_reason(&demand(), &slack, &room)
                .unwrap()
                .contains("6 units of standard are free")
        );
    }

    #[test]
    fn none_is_added_while_one_is_in_progress_or_at_the_regions_limit() {
        let offer = Offer::default();
        for phase in Phase::ALL {
            let in_progress =
                [candidate("a", 5, 5, |_| {}), candidate("b", 5, 0, |c| c.phase = phase)];
            let early = matches!(
                phase,
                Phase::Accepted | Phase::Provisioning | Phase::Provisioned | Phase::Waiting
            );
            let needed = !early && phase != Phase::Ready;
            assert_eq!(
                scale_up_reason(&demand(), &offer, &in_progress).is_some(),
                needed,
                "{phase:?}"
            );
        }
        let closed = Offer { limit: Some(3), ..offer };
        assert_eq!(scale_up_reason(&demand(), &closed, &[]), None);
        let elsewhere = [candidate("a", 5, 0, |c| {
            c.phase = Phase::Accepted;
            c.spec.region = "r2".into();
        })];
        assert!(scale_up_reason(&demand(), &offer, &elsewhere).is_some());
    }

    #[test]
    fn the_last_cluster_with_capacity_is_needed_and_a_second_is_not() {
        let offer = Offer::default();
        let two = [candidate("a", 5, 0, |_| {}), candidate("b", 5, 0, |_| {})];
        assert!(!is_needed("a", &demand(), &offer, &two));
        assert!(is_needed("a", &demand(), &offer, &two[..1]));
        let lost = [two[0].clone(), candidate("b", 5, 0, |c| c.status.agent_lost = true)];
        assert!(is_needed("a", &demand(), &offer, &lost), "a lost cluster does not count");
    }
}
