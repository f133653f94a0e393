//! Selects the cluster of an instance: filters, then the best fit; and explains the rejections.

use std::sync::Arc;

use crate::model::cluster::{self, Candidate, Cluster, Phase};
use crate::model::instance::Instance;
use crate::model::settings::Scaling;

/// The result for one cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementVerdict {
    pub cluster: Arc<Cluster>,
    /// None if the cluster is suitable.
    pub rejection: Option<Rejection>,
    /// Units that would be free afterwards; none: no limit.
    pub left: Option<i64>,
}

/// Why a cluster is not suitable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    EnterpriseOnly,
    NotRequested,
    NotReady,
    Deleting,
    Unschedulable,
    AgentLost,
    RejectedIt,
    OtherCloud,
    OtherRegion,
    SingleZone,
    OtherTypes,
    Full { used: i64, limit: i64 },
}

impl PlacementVerdict {
    /// The rejection in words.
    pub fn why(&self) -> Option<String> {
        let spec = &self.cluster.spec;
        Some(match self.rejection? {
            Rejection::EnterpriseOnly => "it belongs to an organisation".into(),
            Rejection::NotRequested => "another cluster was asked for".into(),
            Rejection::NotReady => format!("it is {}", self.cluster.phase.label()),
            Rejection::Deleting => "it is being taken away".into(),
            Rejection::Unschedulable => "it takes no new instances (schedulable: false)".into(),
            Rejection::AgentLost => "its agent has been silent for too long".into(),
            Rejection::RejectedIt => "it refused this instance: not enough resources".into(),
            Rejection::OtherCloud => format!("it is in another cloud: {}", spec.cloud_provider),
            Rejection::OtherRegion => format!("it is in another region: {}", spec.region),
            Rejection::SingleZone => "it has one zone, and more are asked for".into(),
            Rejection::OtherTypes => "it takes no instances of this kind and type".into(),
            Rejection::Full { used, limit } => {
                format!("it is full: {used} of {limit} units are used")
            }
        })
    }
}

/// Evaluates all clusters: suitable ones first, the best fit before the others.
pub fn rank_clusters(
    instance: &Instance,
    scaling: Scaling,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Vec<PlacementVerdict> {
    let ranked = candidates.into_iter().map(|candidate| {
        let limit = limit(instance, scaling, &candidate.cluster);
        let left = limit.map(|limit| limit - candidate.used - instance.spec.units);
        let rejection = rejection(instance, &candidate, limit);
        PlacementVerdict { cluster: candidate.cluster, rejection, left }
    });
    let mut ranked: Vec<PlacementVerdict> = ranked.collect();
    // The tightest fit leaves large gaps for large instances.
    ranked.sort_by(|a, b| {
        let rank = |v: &PlacementVerdict| (v.rejection.is_some(), v.left.unwrap_or(i64::MAX));
        rank(a).cmp(&rank(b)).then_with(|| a.cluster.id.cmp(&b.cluster.id))
    });
    ranked
}

fn limit(instance: &Instance, scaling: Scaling, cluster: &Cluster) -> Option<i64> {
    match scaling {
        Scaling::None if instance.spec.own_cluster_id.is_empty() => None,
        _ => cluster::limit(cluster, &instance.spec.instance_type),
    }
}

fn rejection(instance: &Instance, candidate: &Candidate, limit: Option<i64>) -> Option<Rejection> {
    let Candidate { cluster, used } = candidate;
    let (spec, wanted) = (&cluster.spec, &instance.spec);
    let differs = |has: &str, asked: &str| !has.is_empty() && has != asked;
    let own_cluster = &wanted.own_cluster_id;
    let needs_own = !own_cluster.is_empty();
    let checks = [
        (!needs_own && !cluster.org.is_empty(), Rejection::EnterpriseOnly),
        (
            needs_own && (*own_cluster != cluster.id || cluster.org != instance.org),
            Rejection::NotRequested,
        ),
        (cluster.phase != Phase::Ready, Rejection::NotReady),
        (spec.deleting, Rejection::Deleting),
        (!spec.schedulable, Rejection::Unschedulable),
        (cluster.status.agent_lost, Rejection::AgentLost),
        (instance.status.rejected_by.contains(&cluster.id), Rejection::RejectedIt),
        (differs(&spec.cloud_provider, &wanted.cloud_provider), Rejection::OtherCloud),
        (differs(&spec.region, &wanted.region), Rejection::OtherRegion),
        (wanted.multi_az && !spec.multi_az, Rejection::SingleZone),
        (!cluster.spec.takes(&instance.kind, &wanted.instance_type), Rejection::OtherTypes),
    ];
    if let Some((_, why)) = checks.into_iter().find(|(applies, _)| *applies) {
        return Some(why);
    }
    let limit = limit.filter(|limit| used + wanted.units > *limit)?;
    Some(Rejection::Full { used: *used, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::{self, Spec, Status};
    use crate::model::instance;
    use kernel::Timestamp;

    fn cluster(id: &str, limit: i64, change: impl FnOnce(&mut Cluster)) -> Candidate {
        let spec = Spec {
            cloud_provider: "aws".into(),
            region: "r1".into(),
            multi_az: true,
            schedulable: true,
            limit: Some(limit),
            ..Spec::default()
        };
        let mut cluster = Cluster {
            id: id.into(),
            kind: "cluster".into(),
            org: String::new(),
            owner: String::new(),
            name: id.into(),
            phase: cluster::Phase::Ready,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec,
            status: Status::default(),
        };
        change(&mut cluster);
        Candidate { cluster: Arc::new(cluster), used: 0 }
    }

    fn instance(change: impl FnOnce(&mut Instance)) -> Instance {
        let spec = instance::Spec {
            cloud_provider: "aws".into(),
            region: "r1".into(),
            multi_az: true,
            instance_type: "standard".into(),
            units: 2,
            ..Default::default()
        };
        let (kind, org) = ("kafka".into(), "acme".into());
        let mut instance = Instance { kind, org, spec, ..Default::default() };
        change(&mut instance);
        instance
    }

    fn ranked(
        instance: &Instance,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> Vec<PlacementVerdict> {
        rank_clusters(instance, Scaling::Manual, candidates)
    }

    #[test]
    fn the_tightest_fit_is_selected() {
        let all = [cluster("a", 10, |_| {}), cluster("b", 2, |_| {}), cluster("c", 1, |_| {})];
        let ranked = ranked(&instance(|_| {}), all);
        let order: Vec<&str> = ranked.iter().map(|v| v.cluster.id.as_str()).collect();
        assert_eq!(order, ["b", "a", "c"]);
        assert!(ranked[2].why().unwrap().contains("0 of 1 units are used"));
    }

    #[test]
    fn each_rejection_has_its_reason() {
        type Edit = fn(&mut Cluster);
        let table: [(Edit, &str); 8] = [
            (|c| c.org = "acme".into(), "belongs to an organisation"),
            (|c| c.phase = Phase::Waiting, "waiting_for"),
            (|c| c.spec.schedulable = false, "no new instances"),
            (|c| c.status.agent_lost = true, "silent"),
            (|c| c.spec.region = "r2".into(), "region: r2"),
            (|c| c.spec.multi_az = false, "one zone"),
            (|c| c.spec.instance_types = vec!["developer".into()], "this kind and type"),
            (|c| c.spec.deleting = true, "taken away"),
        ];
        for (change, expected) in table {
            let ranked = ranked(&instance(|_| {}), [cluster("a", 10, change)]);
            let why = ranked[0].why().unwrap();
            assert!(why.contains(expected), "{why}");
        }
        let refused = instance(|i| i.status.rejected_by = vec!["a".into()]);
        assert!(ranked(&refused, [cluster("a", 10, |_| {})])[0].rejection.is_some());
    }

    #[test]
    fn an_own_cluster_is_the_only_candidate_and_only_for_its_organisation() {
        let own = cluster("mine", 10, |c| c.org = "acme".into());
        let asked = instance(|i| i.spec.own_cluster_id = "mine".into());
        assert_eq!(ranked(&asked, [own.clone()])[0].rejection, None);
        let foreign = Instance { org: "other".into(), ..asked.clone() };
        assert!(ranked(&foreign, [own])[0].rejection.is_some());
        assert!(ranked(&asked, [cluster("shared", 10, |_| {})])[0].rejection.is_some());
    }

    #[test]
    fn without_scaling_limits_are_ignored() {
        let large = instance(|i| i.spec.units = 99);
        assert_eq!(
            rank_clusters(&large, Scaling::None, [cluster("a", 1, |_| {})])[0].rejection,
            None
        );
    }
}
