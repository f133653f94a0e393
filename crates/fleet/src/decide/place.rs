//! Which cluster an instance goes to: filters, then the best fit; and why the others were not
//! chosen.

use std::sync::Arc;

use crate::config::Scaling;
use crate::model::cluster::{Cluster, Status};

/// What is to be placed.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub kind: &'a str,
    pub org: &'a str,
    pub cloud_provider: &'a str,
    pub region: &'a str,
    pub multi_az: bool,
    pub instance_type: &'a str,
    pub units: i64,
    /// The organisation's own cluster that it must go to; empty: one of ours.
    pub own_cluster: &'a str,
    pub refused_by: &'a [String],
    pub scaling: Scaling,
}

/// A cluster and what it holds of the asked type (of all types, if one limit is for all).
#[derive(Debug, Clone)]
pub struct Candidate {
    pub cluster: Arc<Cluster>,
    pub used: i64,
}

/// What was found about one cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub cluster: Arc<Cluster>,
    /// Why not; none if it would do.
    pub against: Option<Against>,
    /// Units that would be free afterwards; none: no limit.
    pub left: Option<i64>,
}

/// Why a cluster would not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    SomeonesOwn,
    AnotherAskedFor,
    NotReady,
    Going,
    Unschedulable,
    AgentLost,
    RefusedIt,
    OtherCloud,
    OtherRegion,
    OneZone,
    OtherTypes,
    Full { used: i64, limit: i64 },
}

impl Judgement {
    /// Why it would not do, in words.
    pub fn why(&self) -> Option<String> {
        let spec = &self.cluster.spec;
        Some(match self.against? {
            Against::SomeonesOwn => "it belongs to an organisation".into(),
            Against::AnotherAskedFor => "another cluster was asked for".into(),
            Against::NotReady => format!("it is {}", self.cluster.status.label()),
            Against::Going => "it is being taken away".into(),
            Against::Unschedulable => "it takes no new instances (schedulable: false)".into(),
            Against::AgentLost => "its agent has been silent for too long".into(),
            Against::RefusedIt => "it refused this instance: not enough resources".into(),
            Against::OtherCloud => format!("it is in another cloud: {}", spec.cloud_provider),
            Against::OtherRegion => format!("it is in another region: {}", spec.region),
            Against::OneZone => "it has one zone, and more are asked for".into(),
            Against::OtherTypes => "it takes no instances of this kind and type".into(),
            Against::Full { used, limit } => {
                format!("it is full: {used} of {limit} units are used")
            }
        })
    }
}

/// All clusters: those that would do first, the best fit before the others.
pub fn judge(
    request: &Request<'_>,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Vec<Judgement> {
    let judged = candidates.into_iter().map(|candidate| {
        let limit = limit(request, &candidate.cluster);
        let left = limit.map(|limit| limit - candidate.used - request.units);
        let against = against(request, &candidate, limit);
        Judgement { cluster: candidate.cluster, against, left }
    });
    let mut judged: Vec<Judgement> = judged.collect();
    // The least room that is enough keeps large gaps for large instances.
    judged.sort_by(|a, b| {
        let rank = |j: &Judgement| (j.against.is_some(), j.left.unwrap_or(i64::MAX));
        rank(a).cmp(&rank(b)).then_with(|| a.cluster.id.cmp(&b.cluster.id))
    });
    judged
}

fn limit(request: &Request<'_>, cluster: &Cluster) -> Option<i64> {
    match request.scaling {
        Scaling::None if request.own_cluster.is_empty() => None,
        _ => cluster.limit(request.instance_type),
    }
}

fn against(request: &Request<'_>, candidate: &Candidate, limit: Option<i64>) -> Option<Against> {
    let Candidate { cluster, used } = candidate;
    let spec = &cluster.spec;
    let differs = |has: &str, asked: &str| !has.is_empty() && has != asked;
    let own_asked = !request.own_cluster.is_empty();
    let checks = [
        (!own_asked && !cluster.org.is_empty(), Against::SomeonesOwn),
        (
            own_asked && (request.own_cluster != cluster.id || cluster.org != request.org),
            Against::AnotherAskedFor,
        ),
        (cluster.status != Status::Ready, Against::NotReady),
        (spec.deleting, Against::Going),
        (!spec.schedulable, Against::Unschedulable),
        (cluster.seen.agent_lost, Against::AgentLost),
        (request.refused_by.contains(&cluster.id), Against::RefusedIt),
        (differs(&spec.cloud_provider, request.cloud_provider), Against::OtherCloud),
        (differs(&spec.region, request.region), Against::OtherRegion),
        (request.multi_az && !spec.multi_az, Against::OneZone),
        (!cluster.takes(request.kind, request.instance_type), Against::OtherTypes),
    ];
    if let Some((_, why)) = checks.into_iter().find(|(is, _)| *is) {
        return Some(why);
    }
    let limit = limit.filter(|limit| used + request.units > *limit)?;
    Some(Against::Full { used: *used, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::{self, Seen, Spec};
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
            org: String::new(),
            owner: String::new(),
            name: id.into(),
            status: cluster::Status::Ready,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec,
            seen: Seen::default(),
        };
        change(&mut cluster);
        Candidate { cluster: Arc::new(cluster), used: 0 }
    }

    fn request() -> Request<'static> {
        Request {
            kind: "kafka",
            org: "acme",
            cloud_provider: "aws",
            region: "r1",
            multi_az: true,
            instance_type: "standard",
            units: 2,
            own_cluster: "",
            refused_by: &[],
            scaling: Scaling::Manual,
        }
    }

    #[test]
    fn the_least_room_that_is_enough_is_taken() {
        let all = [cluster("a", 10, |_| {}), cluster("b", 2, |_| {}), cluster("c", 1, |_| {})];
        let judged = judge(&request(), all);
        let order: Vec<&str> = judged.iter().map(|j| j.cluster.id.as_str()).collect();
        assert_eq!(order, ["b", "a", "c"]);
        assert!(judged[2].why().unwrap().contains("0 of 1 units are used"));
    }

    #[test]
    fn each_reason_against_a_cluster_is_said() {
        type Edit = fn(&mut Cluster);
        let table: [(Edit, &str); 8] = [
            (|c| c.org = "acme".into(), "belongs to an organisation"),
            (|c| c.status = Status::Waiting, "waiting_for"),
            (|c| c.spec.schedulable = false, "no new instances"),
            (|c| c.seen.agent_lost = true, "silent"),
            (|c| c.spec.region = "r2".into(), "region: r2"),
            (|c| c.spec.multi_az = false, "one zone"),
            (|c| c.spec.instance_types = vec!["developer".into()], "this kind and type"),
            (|c| c.spec.deleting = true, "taken away"),
        ];
        for (change, expected) in table {
            let judged = judge(&request(), [cluster("a", 10, change)]);
            let why = judged[0].why().unwrap();
            assert!(why.contains(expected), "{why}");
        }
        let refused = Request { refused_by: &["a".to_owned()], ..request() };
        assert!(judge(&refused, [cluster("a", 10, |_| {})])[0].against.is_some());
    }

    #[test]
    fn an_own_cluster_is_the_only_one_and_only_for_its_organisation() {
        let own = cluster("mine", 10, |c| c.org = "acme".into());
        let asked = Request { own_cluster: "mine", ..request() };
        assert_eq!(judge(&asked, [own.clone()])[0].against, None);
        let foreign = Request { org: "other", ..asked.clone() };
        assert!(judge(&foreign, [own])[0].against.is_some());
        assert!(judge(&asked, [cluster("shared", 10, |_| {})])[0].against.is_some());
    }

    #[test]
    fn without_scaling_no_limit_counts() {
        let anything = Request { scaling: Scaling::None, units: 99, ..request() };
        assert_eq!(judge(&anything, [cluster("a", 1, |_| {})])[0].against, None);
    }
}
