//! The change that an agent's report makes to an instance. Agents may be wrong, late or out of
//! order: a report that does not fit changes nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::instance::lifecycle::Event;
use crate::model::cluster::Cluster;
use crate::model::instance::{Instance, Phase, Route};
use crate::model::kind::Kind;

/// The longest text of a report that is kept.
const TEXT_MAX: usize = 1_024;
/// The most routes of one instance; a Kafka has three and one for each broker.
const ROUTES_MAX: usize = 64;
/// The most names of one instance over its whole life.
const NAMES_MAX: usize = 256;
/// The message by which an agent rejects an instance for lack of capacity.
const NO_ROOM: &str = "cluster has insufficient resources";

/// An agent's report of one instance, as far as it could be parsed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub state: ReportedState,
    pub reason: String,
    pub message: String,
    pub versions: BTreeMap<String, String>,
    pub routes: Option<Vec<(String, String)>>,
    pub values: BTreeMap<String, String>,
    /// Where it can be reached: only data planes of our own report it.
    pub address: String,
}

/// The Ready condition, read in the order that existing agents rely on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReportedState {
    Suspended,
    Ready,
    /// Nothing that can be relied on.
    Unknown,
    #[default]
    Installing,
    Deleted,
    Broken,
    Rejected,
}

impl Report {
    /// Parses a report. A value that is missing or of a wrong type counts as not reported.
    pub fn read(kind: &Kind, value: &Value) -> Report {
        let text = |value: Option<&Value>| {
            let text = value.and_then(Value::as_str).unwrap_or_default();
            text.chars().take(TEXT_MAX).collect::<String>()
        };
        let conditions = value["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ready = conditions.iter().find(|condition| {
            condition["type"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("ready"))
        });
        let field = |name: &str| text(ready.and_then(|condition| condition.get(name)));
        let (status, reason, message) = (field("status"), field("reason"), field("message"));
        let is = |text: &str, word: &str| text.eq_ignore_ascii_case(word);
        let state = if is(&reason, "suspended") {
            ReportedState::Suspended
        } else if is(&status, "true") {
            ReportedState::Ready
        } else if is(&status, "unknown") {
            ReportedState::Unknown
        } else if is(&reason, "deleted") {
            ReportedState::Deleted
        } else if is(&reason, "error") {
            ReportedState::Broken
        } else if is(&reason, "rejected") {
            ReportedState::Rejected
        } else {
            ReportedState::Installing
        };
        let empty = Map::new();
        let versions = value["versions"].as_object().unwrap_or(&empty);
        let known = |name: &&String| {
            let versions = kind.file.versions.as_ref();
            versions.is_some_and(|v| v.operator == **name || v.components.contains_key(*name))
        };
        let routes = value["routes"].as_array().map(|routes| {
            let route = |route: &Value| (text(route.get("prefix")), text(route.get("router")));
            routes.iter().take(ROUTES_MAX).map(route).filter(|(_, to)| !to.is_empty()).collect()
        });
        let values = kind.file.reported.iter().map(|name| (name.clone(), text(value.get(name))));
        Report {
            state,
            reason,
            message,
            versions: versions
                .iter()
                .filter(|(name, _)| known(name))
                .map(|(name, version)| (name.clone(), text(Some(version))))
                .filter(|(_, version)| !version.is_empty())
                .collect(),
            routes,
            values: values.filter(|(_, value)| !value.is_empty()).collect(),
            address: text(value.get("address")),
        }
    }
}

/// The result of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing is new.
    Unchanged,
    /// Not from the instance's cluster, or out of order; why.
    Rejected(&'static str),
    /// The instance after it, its life-cycle event, and whether to wake the worker.
    Changed { next: Box<Instance>, event: Option<Event>, wake: bool },
}

/// Evaluates a report of an instance. `names` is whether the instance gets DNS names, `fresh_id` a
/// new id in case one is needed.
pub fn evaluate_report(
    instance: &Instance,
    kind: &Kind,
    cluster: &Cluster,
    report: &Report,
    names: bool,
    fresh_id: &str,
) -> Verdict {
    if instance.status.cluster_id != cluster.id {
        return Verdict::Rejected("it is not on this cluster");
    }
    if !instance.status.is_on_data_plane() {
        return Verdict::Rejected("this cluster does not have it yet");
    }
    if instance.phase.is_going() {
        let removed =
            report.state == ReportedState::Deleted && instance.phase == Phase::Deprovision;
        return if removed {
            changed(instance.clone(), Some(Event::Removed), true)
        } else {
            Verdict::Unchanged
        };
    }
    let mut next = instance.clone();
    next.status.versions.update(&report.versions);
    next.status.agent.update(&report.values);
    next.status.upgrading = upgrading(kind, report);
    if matches!(cluster.spec.provider, crate::model::cluster::Provider::Local) {
        next.status.address = report.address.clone();
    }
    if let Some(routes) = routes(instance, cluster, report)
        && next.status.routes.as_ref() != Some(&routes)
        && record_names(&mut next, &routes)
    {
        next.status.routes = Some(routes);
        next.status.routes_created = false;
        next.status.dns_change.clear();
    }
    let event = match report.state {
        ReportedState::Unknown => None,
        ReportedState::Installing => {
            next.status.agent_ready = false;
            None
        }
        ReportedState::Deleted => return Verdict::Rejected("it should not have been deleted"),
        ReportedState::Ready => ready(&mut next, names),
        ReportedState::Suspended => Some(Event::Suspended),
        ReportedState::Broken => {
            next.status.agent_ready = false;
            if !matches!(instance.phase, Phase::Suspending | Phase::Suspended) {
                next.status.failed_reason = broken(report);
            }
            Some(Event::Broken)
        }
        ReportedState::Rejected => return rejected(next, cluster, report, fresh_id),
    };
    let transition = event.filter(|event| {
        super::instance::lifecycle::next_phase(instance.phase, *event) != super::Transition::None
    });
    if transition.is_none() && next == *instance {
        return Verdict::Unchanged;
    }
    let wake =
        names && next.status.routes.is_some() && next.status.routes != instance.status.routes
            || next.status.agent_ready && !next.status.routes_created;
    changed(next, transition, wake)
}

fn changed(next: Instance, event: Option<Event>, wake: bool) -> Verdict {
    Verdict::Changed { next: Box::new(next), event, wake }
}

/// Ready, if its DNS names are in place; otherwise the worker completes it.
fn ready(next: &mut Instance, names: bool) -> Option<Event> {
    next.status.agent_ready = true;
    if !names {
        next.status.routes_created = true;
    }
    if !next.status.routes_created {
        return None;
    }
    next.status.failed_reason.clear();
    next.status.waiting_for.clear();
    Some(Event::Ready)
}

fn broken(report: &Report) -> String {
    match report.message.as_str() {
        "" => "its data plane reports an error".into(),
        message => format!("its data plane reports an error: {message}"),
    }
}

/// Has the same cluster try again, or unplaces it if the cluster has no capacity.
fn rejected(mut next: Instance, cluster: &Cluster, report: &Report, fresh_id: &str) -> Verdict {
    if next.phase != Phase::Provisioning {
        return Verdict::Rejected("only what is being made can be rejected");
    }
    let own = !next.spec.own_cluster_id.is_empty();
    next.status.agent_ready = false;
    if own || !report.message.to_lowercase().contains(NO_ROOM) {
        next.status.placement_id = fresh_id.into();
        return changed(next, Some(Event::Rejected), false);
    }
    next.status.rejected_by.push(cluster.id.clone());
    next.status.cluster_id.clear();
    next.status.placement_id.clear();
    next.spec.versions.clear();
    next.status.waiting_for = format!("another cluster: {} has no room", cluster.id);
    changed(next, Some(Event::Rejected), true)
}

/// The reported routes, if all of them lead to the cluster's own routers, by valid DNS names, and each
/// name to one target.
fn routes(instance: &Instance, cluster: &Cluster, report: &Report) -> Option<Vec<Route>> {
    let routes = report.routes.as_ref().filter(|routes| !routes.is_empty())?;
    let base = &cluster.spec.dns_name.to_ascii_lowercase();
    let host = &instance.status.host;
    let is_own =
        |router: &str| base.is_empty() || router == base || router.ends_with(&format!(".{base}"));
    let mut targets = BTreeMap::new();
    let mut accepted = Vec::new();
    for (prefix, router) in routes {
        // DNS returns them in lower case, and is compared with this.
        let router = router.to_ascii_lowercase();
        let domain = match prefix.as_str() {
            "" => host.clone(),
            prefix => format!("{}-{host}", prefix.to_ascii_lowercase()),
        };
        let other = targets.insert(domain.clone(), router.clone());
        let one_target = other.is_none_or(|other| other == router);
        if !is_own(&router) || !is_host(&router) || !is_host(&domain) || !one_target {
            return None;
        }
        accepted.push(Route { domain, router });
    }
    Some(accepted)
}

/// Whether it is a valid DNS name.
fn is_host(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(letter);
    name.len() <= 253 && name.split('.').all(label)
}

/// Records the names that must be removed with the instance. Returns false if it has had too many:
/// a name that is not recorded is not registered.
fn record_names(next: &mut Instance, routes: &[Route]) -> bool {
    let mut names = next.status.names.clone();
    names.extend(routes.iter().map(|route| route.domain.clone()));
    let fits = names.len() <= NAMES_MAX;
    if fits {
        next.status.names = names;
    }
    fits
}

fn upgrading(kind: &Kind, report: &Report) -> Vec<String> {
    let Some(versions) = &kind.file.versions else { return Vec::new() };
    let is = |reason: &str| report.reason.eq_ignore_ascii_case(reason);
    let updating = versions.admin.iter().filter(|(_, admin)| is(&admin.updating));
    updating.map(|(component, _)| component.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster;
    use crate::model::instance::{Spec, Status};
    use kernel::Timestamp;
    use serde_json::json;

    fn kafka() -> Kind {
        Kind::read("kafka.yaml", include_str!("../../../../kinds/kafka.yaml")).unwrap()
    }

    fn cluster() -> Cluster {
        Cluster {
            id: "c1".into(),
            kind: "cluster".into(),
            org: String::new(),
            owner: String::new(),
            name: "c1".into(),
            phase: cluster::Phase::Ready,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: cluster::Spec { dns_name: "apps.c1.example".into(), ..Default::default() },
            status: Default::default(),
        }
    }

    fn instance(phase: Phase) -> Instance {
        Instance {
            id: "k1".into(),
            kind: "kafka".into(),
            org: "acme".into(),
            owner: "alice".into(),
            name: "demo".into(),
            phase,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: Spec::default(),
            status: Status {
                cluster_id: "c1".into(),
                placement_id: "p1".into(),
                host: "demo-k1.example".into(),
                ..Status::default()
            },
        }
    }

    fn state(status: &str, reason: &str, message: &str) -> Report {
        let condition =
            json!({"type": "ready", "status": status, "reason": reason, "message": message});
        Report::read(&kafka(), &json!({"conditions": [condition]}))
    }

    fn after(instance: &Instance, report: &Report, names: bool) -> Verdict {
        evaluate_report(instance, &kafka(), &cluster(), report, names, "fresh")
    }

    fn event(verdict: Verdict) -> Option<Event> {
        match verdict {
            Verdict::Changed { event, .. } => event,
            _ => None,
        }
    }

    #[test]
    fn the_condition_is_read_in_the_order_that_agents_rely_on() {
        let table = [
            ("True", "Suspended", ReportedState::Suspended),
            ("True", "Error", ReportedState::Ready),
            ("Unknown", "Error", ReportedState::Unknown),
            ("False", "INSTALLING", ReportedState::Installing),
            ("False", "Deleted", ReportedState::Deleted),
            ("False", "Error", ReportedState::Broken),
            ("False", "Rejected", ReportedState::Rejected),
            ("", "", ReportedState::Installing),
        ];
        for (status, reason, expected) in table {
            assert_eq!(state(status, reason, "").state, expected, "{status} {reason}");
        }
        assert_eq!(Report::read(&kafka(), &json!("nonsense")).state, ReportedState::Installing);
        assert_eq!(
            Report::read(&kafka(), &json!({"conditions": [1, {}], "routes": 5})).routes,
            None
        );
    }

    #[test]
    fn an_instance_is_ready_at_once_without_dns_names_and_otherwise_after_them() {
        let report = state("True", "", "");
        let provisioning = instance(Phase::Provisioning);
        assert_eq!(event(after(&provisioning, &report, false)), Some(Event::Ready));
        let Verdict::Changed { next, event: None, wake: true } =
            after(&provisioning, &report, true)
        else {
            panic!("names come first")
        };
        assert!(next.status.agent_ready && !next.status.routes_created);
        let mut ready = instance(Phase::Ready);
        ready.status.agent_ready = true;
        ready.status.routes_created = true;
        assert_eq!(after(&ready, &report, true), Verdict::Unchanged, "nothing new writes nothing");
    }

    #[test]
    fn a_deleting_instance_ignores_every_report_but_its_removal() {
        assert_eq!(
            event(after(&instance(Phase::Deprovision), &state("False", "Deleted", ""), true)),
            Some(Event::Removed)
        );
        for report in [state("True", "", ""), state("False", "Error", "x")] {
            assert_eq!(after(&instance(Phase::Deprovision), &report, false), Verdict::Unchanged);
        }
        let deleted = state("False", "Deleted", "");
        assert!(matches!(after(&instance(Phase::Ready), &deleted, false), Verdict::Rejected(_)));
        let mut early = instance(Phase::Accepted);
        early.status.placement_id.clear();
        assert!(matches!(after(&early, &state("True", "", ""), false), Verdict::Rejected(_)));
    }

    #[test]
    fn a_report_of_another_clusters_instance_is_rejected() {
        let mut elsewhere = instance(Phase::Provisioning);
        elsewhere.status.cluster_id = "c2".into();
        assert!(matches!(after(&elsewhere, &state("True", "", ""), false), Verdict::Rejected(_)));
    }

    #[test]
    fn a_rejected_instance_is_placed_again_but_not_on_a_full_cluster() {
        let provisioning = instance(Phase::Provisioning);
        let Verdict::Changed { next, .. } =
            after(&provisioning, &state("False", "Rejected", "later"), false)
        else {
            panic!()
        };
        assert_eq!(
            (next.status.cluster_id.as_str(), next.status.placement_id.as_str()),
            ("c1", "fresh")
        );
        let full = state("False", "Rejected", "Cluster has insufficient resources");
        let Verdict::Changed { next, wake: true, .. } = after(&provisioning, &full, false) else {
            panic!()
        };
        assert_eq!(
            (next.status.cluster_id.as_str(), next.status.rejected_by.as_slice()),
            ("", &["c1".to_owned()][..])
        );
    }

    #[test]
    fn routes_to_other_clusters_are_ignored() {
        let routed = |router: &str| {
            let routes = json!([{"name": "x", "prefix": "admin-server", "router": router}]);
            let report = Report::read(&kafka(), &json!({"routes": routes}));
            match after(&instance(Phase::Provisioning), &report, true) {
                Verdict::Changed { next, .. } => next.status.routes,
                _ => None,
            }
        };
        let good = routed("router-1.apps.c1.example").unwrap();
        assert_eq!(good[0].domain, "admin-server-demo-k1.example");
        assert_eq!(routed("evil.example"), None);
        assert_eq!(routed("xapps.c1.example"), None);
        assert_eq!(routed("Router-1.apps.c1.example").unwrap(), good);
        assert_eq!(routed("a b.apps.c1.example"), None);
        assert_eq!(routed("..apps.c1.example"), None);
    }

    #[test]
    fn invalid_dns_names_are_ignored_and_valid_ones_recorded() {
        let route = |prefix: &str, router: &str| json!({"prefix": prefix, "router": router});
        let router = "r.apps.c1.example";
        let routed = |instance: &Instance, routes: Value| match after(
            instance,
            &Report::read(&kafka(), &json!({"routes": routes})),
            true,
        ) {
            Verdict::Changed { next, .. } => Some(*next),
            _ => None,
        };
        let mut instance = instance(Phase::Provisioning);
        let long = "x".repeat(64);
        for prefix in ["a b", "a/../b", "a..", "*", "é", "a\n", &long] {
            assert!(routed(&instance, json!([route(prefix, router)])).is_none(), "{prefix:?}");
        }
        let conflicting = json!([route("a", router), route("A", "s.apps.c1.example")]);
        assert!(routed(&instance, conflicting).is_none(), "one name, two targets");
        // New names again and again: at some point no more are accepted, and all that were are recorded.
        for i in 0..2 * NAMES_MAX {
            let next = routed(&instance, json!([route(&format!("n{i}"), router)]));
            instance = next.unwrap_or(instance);
            let names = instance.status.routes.iter().flatten().map(|route| &route.domain);
            assert!(names.into_iter().all(|name| instance.status.names.contains(name)));
        }
        assert_eq!(instance.status.names.len(), NAMES_MAX);
    }

    #[test]
    fn a_broken_instance_keeps_the_reason_and_recovers() {
        let report = state("False", "Error", "disk full");
        let Verdict::Changed { next, event: Some(Event::Broken), .. } =
            after(&instance(Phase::Ready), &report, false)
        else {
            panic!()
        };
        assert!(next.status.failed_reason.contains("disk full"));
        let mut failed = *next;
        failed.phase = Phase::Failed;
        assert_eq!(event(after(&failed, &state("True", "", ""), false)), Some(Event::Ready));
        assert_eq!(event(after(&instance(Phase::Suspended), &report, false)), None);
    }
}
