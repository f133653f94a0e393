//! Whether a region needs one cluster more, or could do with one less. Pure.

use crate::model::cluster::Candidate;
use crate::model::cluster::{Cluster, Phase};
use crate::model::providers::Offer;

/// A region is short of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleUp {
    pub cloud_provider: String,
    pub region: String,
    pub instance_type: String,
    pub multi_az: bool,
    pub why: String,
}

/// What a region is asked for: one kind's instances of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionDemand<'a> {
    pub kind: &'a str,
    pub cloud_provider: &'a str,
    pub region: &'a str,
    pub instance_type: &'a str,
    pub multi_az: bool,
    /// Of the largest size: there should always be room for one.
    pub biggest: i64,
    /// Used in the region, with what is being placed.
    pub used: i64,
    /// Of what is being placed: it takes the least room that is enough, and that is not free then.
    pub placing: i64,
}

/// Why the region needs one more; none if it does not, or may not have one.
pub fn scale_up_reason(
    demand: &RegionDemand<'_>,
    offer: &Offer,
    all: &[Candidate],
) -> Option<String> {
    if offer.limit.is_some_and(|limit| demand.used >= limit) {
        return None;
    }
    let mut here = all.iter().filter(|holding| serves(&holding.cluster, demand));
    if here.any(|holding| is_under_way(&holding.cluster)) {
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
    let here = all.iter().filter(|holding| {
        serves(&holding.cluster, demand)
            && takes_new(&holding.cluster)
            && Some(holding.cluster.id.as_str()) != without
    });
    let mut free: Vec<i64> = here
        .map(|holding| match holding.cluster.limit(demand.instance_type) {
            Some(limit) => (limit - holding.used).max(0),
            None => i64::MAX,
        })
        .collect();
    let RegionDemand { instance_type: of, biggest, placing, .. } = demand;
    free.sort_unstable();
    if let Some(room) = free.iter_mut().find(|free| **free >= *placing) {
        *room -= placing;
    }
    if !free.iter().any(|free| free >= biggest) {
        return Some(format!("no cluster has room for {biggest} units of {of}"));
    }
    let slack = offer.min_available_capacity_slack_streaming_units;
    let free = free.into_iter().fold(0_i64, i64::saturating_add);
    (free < slack).then(|| format!("{free} units of {of} are free, {slack} should be"))
}

fn serves(cluster: &Cluster, demand: &RegionDemand<'_>) -> bool {
    let spec = &cluster.spec;
    let is = |has: &str, asked: &str| has.is_empty() || has == asked;
    cluster.org.is_empty()
        && is(&spec.cloud_provider, demand.cloud_provider)
        && is(&spec.region, demand.region)
        && (spec.multi_az || !demand.multi_az)
        && cluster.takes(demand.kind, demand.instance_type)
}

fn takes_new(cluster: &Cluster) -> bool {
    cluster.phase == Phase::Ready
        && cluster.spec.schedulable
        && !cluster.spec.deleting
        && !cluster.status.agent_lost
}

fn is_under_way(cluster: &Cluster) -> bool {
    let early = [Phase::Accepted, Phase::Provisioning, Phase::Provisioned, Phase::Waiting];
    cluster.spec.schedulable && !cluster.spec.deleting && early.contains(&cluster.phase)
}

/// The counter that only one cluster under way can hold: two who see the same need make one
/// cluster. It is held until the cluster is ready, or gone.
pub fn counter(cloud_provider: &str, region: &str, instance_type: &str) -> String {
    format!("fleet/scaling/{cloud_provider}/{region}/{instance_type}")
}

/// The counters that a cluster of the rules may hold.
pub fn counters(cluster: &Cluster) -> impl Iterator<Item = String> + '_ {
    let spec = &cluster.spec;
    let types = spec.instance_types.iter().filter(|_| spec.dynamic);
    types.map(|of| counter(&spec.cloud_provider, &spec.region, of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::{Spec, Status};
    use kernel::Timestamp;

    fn holding(id: &str, limit: i64, used: i64, change: impl FnOnce(&mut Cluster)) -> Candidate {
        let mut cluster = Cluster {
            id: id.into(),
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
    fn one_more_is_needed_when_the_biggest_does_not_fit_or_the_slack_is_gone() {
        let open = Offer::default();
        let full = [holding("a", 5, 4, |_| {})];
        assert!(scale_up_reason(&demand(), &open, &full).unwrap().contains("room for 2"));
        assert!(scale_up_reason(&demand(), &open, &[]).is_some());
        let room = [holding("a", 10, 4, |_| {})];
        assert_eq!(scale_up_reason(&demand(), &open, &room), None);
        let placing = RegionDemand { placing: 5, ..demand() };
        assert!(scale_up_reason(&placing, &open, &room).is_some(), "what is placed takes the room");
        let slack = Offer { min_available_capacity_slack_streaming_units: 7, ..open };
        assert!(
            scale_up_reason(&demand(), &slack, &room)
                .unwrap()
                .contains("6 units of standard are free")
        );
    }

    #[test]
    fn not_while_one_is_under_way_nor_at_the_regions_limit() {
        let open = Offer::default();
        for phase in Phase::ALL {
            let coming = [holding("a", 5, 5, |_| {}), holding("b", 5, 0, |c| c.phase = phase)];
            let early = matches!(
                phase,
                Phase::Accepted | Phase::Provisioning | Phase::Provisioned | Phase::Waiting
            );
            let needed = !early && phase != Phase::Ready;
            assert_eq!(scale_up_reason(&demand(), &open, &coming).is_some(), needed, "{phase:?}");
        }
        let closed = Offer { limit: Some(3), ..open };
        assert_eq!(scale_up_reason(&demand(), &closed, &[]), None);
        let elsewhere = [holding("a", 5, 0, |c| {
            c.phase = Phase::Accepted;
            c.spec.region = "r2".into();
        })];
        assert!(scale_up_reason(&demand(), &open, &elsewhere).is_some());
    }

    #[test]
    fn the_last_one_with_room_is_needed_and_a_second_is_not() {
        let open = Offer::default();
        let two = [holding("a", 5, 0, |_| {}), holding("b", 5, 0, |_| {})];
        assert!(!is_needed("a", &demand(), &open, &two));
        assert!(is_needed("a", &demand(), &open, &two[..1]));
        let lost = [two[0].clone(), holding("b", 5, 0, |c| c.status.agent_lost = true)];
        assert!(is_needed("a", &demand(), &open, &lost), "one that is lost does not count");
    }
}
