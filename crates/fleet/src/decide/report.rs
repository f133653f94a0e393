//! What an agent's report makes of an instance. Agents may be wrong, late, or out of order: what
//! does not fit changes nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::lifecycle::Event;
use crate::model::cluster::Cluster;
use crate::model::instance::{Instance, Route, Status};
use crate::model::kind::Kind;

/// The longest text of a report that is kept.
const TEXT_MAX: usize = 1_024;
/// Routes of one instance; a Kafka has three and one for each broker.
const ROUTES_MAX: usize = 64;
/// Names of one instance over its whole life.
const NAMES_MAX: usize = 256;
/// The message with which a cluster says that it has no room.
const NO_ROOM: &str = "cluster has insufficient resources";

/// What an agent said of one instance, as far as it could be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub says: Says,
    pub reason: String,
    pub message: String,
    pub versions: BTreeMap<String, String>,
    pub routes: Option<Vec<(String, String)>>,
    pub values: BTreeMap<String, String>,
    /// Where it can be reached: only data planes of our own say it.
    pub address: String,
}

/// The Ready condition, read in the order that existing agents rely on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Says {
    Suspended,
    Ready,
    /// Nothing that could be relied on.
    Unknown,
    #[default]
    Installing,
    Deleted,
    Broken,
    Rejected,
}

impl Report {
    /// Reads a report. What is missing or of a wrong type counts as not said.
    pub fn read(kind: &Kind, value: &Value) -> Report {
        let text = |value: Option<&Value>| {
            let text = value.and_then(Value::as_str).unwrap_or_default();
            text.chars().take(TEXT_MAX).collect::<String>()
        };
        let conditions = value["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ready = conditions.iter().find(|condition| {
            condition["type"].as_str().is_some_and(|of| of.eq_ignore_ascii_case("ready"))
        });
        let field = |name: &str| text(ready.and_then(|condition| condition.get(name)));
        let (status, reason, message) = (field("status"), field("reason"), field("message"));
        let is = |text: &str, word: &str| text.eq_ignore_ascii_case(word);
        let says = match () {
            () if is(&reason, "suspended") => Says::Suspended,
            () if is(&status, "true") => Says::Ready,
            () if is(&status, "unknown") => Says::Unknown,
            () if is(&reason, "installing") => Says::Installing,
            () if is(&reason, "deleted") => Says::Deleted,
            () if is(&reason, "error") => Says::Broken,
            () if is(&reason, "rejected") => Says::Rejected,
            () => Says::Installing,
        };
        let empty = Map::new();
        let versions = value["versions"].as_object().unwrap_or(&empty);
        let known = |name: &&String| {
            let of = kind.file.versions.as_ref();
            of.is_some_and(|of| of.operator == **name || of.components.contains_key(*name))
        };
        let routes = value["routes"].as_array().map(|routes| {
            let route = |route: &Value| (text(route.get("prefix")), text(route.get("router")));
            routes.iter().take(ROUTES_MAX).map(route).filter(|(_, to)| !to.is_empty()).collect()
        });
        let values = kind.file.reported.iter().map(|name| (name.clone(), text(value.get(name))));
        Report {
            says,
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

/// What follows from a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing is new.
    Nothing,
    /// Not this agent's to say, or out of order; why.
    Refused(&'static str),
    /// The instance as it is now, what happened to it, and whether the worker should look.
    Changed { next: Box<Instance>, event: Option<Event>, wake: bool },
}

/// Holds a report against an instance. `names` says whether names are registered for it,
/// `fresh_id` is a new id in case one is needed.
pub fn judge(
    instance: &Instance,
    kind: &Kind,
    cluster: &Cluster,
    report: &Report,
    names: bool,
    fresh_id: &str,
) -> Verdict {
    if instance.seen.cluster_id != cluster.id {
        return Verdict::Refused("it is not on this cluster");
    }
    if !instance.is_on_data_plane() {
        return Verdict::Refused("this cluster was not told of it yet");
    }
    if instance.status.is_going() {
        let removed = report.says == Says::Deleted && instance.status == Status::Deprovision;
        return match removed {
            true => changed(instance.clone(), Some(Event::Removed), true),
            false => Verdict::Nothing,
        };
    }
    let mut next = instance.clone();
    next.seen.versions.update(&report.versions);
    next.seen.agent.update(&report.values);
    next.seen.upgrading = upgrading(kind, report);
    if matches!(cluster.spec.provider, crate::model::cluster::Provider::Local) {
        next.seen.address = report.address.clone();
    }
    if let Some(routes) = routes(instance, cluster, report)
        && next.seen.routes.as_ref() != Some(&routes)
        && note_names(&mut next, &routes)
    {
        next.seen.routes = Some(routes);
        next.seen.routes_created = false;
        next.seen.dns_change.clear();
    }
    let event = match report.says {
        Says::Unknown => None,
        Says::Installing => {
            next.seen.agent_ready = false;
            None
        }
        Says::Deleted => return Verdict::Refused("it should not have been deleted"),
        Says::Ready => ready(&mut next, names),
        Says::Suspended => Some(Event::Suspended),
        Says::Broken => {
            next.seen.agent_ready = false;
            if !matches!(instance.status, Status::Suspending | Status::Suspended) {
                next.seen.failed_reason = broken(report);
            }
            Some(Event::Broken)
        }
        Says::Rejected => return rejected(next, cluster, report, fresh_id),
    };
    let moves =
        event.filter(|event| super::lifecycle::then(instance.status, *event) != super::Then::Stays);
    if moves.is_none() && next == *instance {
        return Verdict::Nothing;
    }
    let waits = names && next.seen.routes.is_some() && next.seen.routes != instance.seen.routes
        || next.seen.agent_ready && !next.seen.routes_created;
    changed(next, moves, waits)
}

fn changed(next: Instance, event: Option<Event>, wake: bool) -> Verdict {
    Verdict::Changed { next: Box::new(next), event, wake }
}

/// Ready, if its names lead there too. The worker finds out otherwise.
fn ready(next: &mut Instance, names: bool) -> Option<Event> {
    next.seen.agent_ready = true;
    if !names {
        next.seen.routes_created = true;
    }
    if !next.seen.routes_created {
        return None;
    }
    next.seen.failed_reason.clear();
    next.seen.waiting_for.clear();
    Some(Event::Ready)
}

fn broken(report: &Report) -> String {
    match report.message.as_str() {
        "" => "its data plane reports an error".into(),
        message => format!("its data plane reports an error: {message}"),
    }
}

/// Not here: the same cluster is asked again, or another one if this one has no room.
fn rejected(mut next: Instance, cluster: &Cluster, report: &Report, fresh_id: &str) -> Verdict {
    if next.status != Status::Provisioning {
        return Verdict::Refused("only what is being made can be rejected");
    }
    let own = !next.spec.own_cluster_id.is_empty();
    next.seen.agent_ready = false;
    if own || !report.message.to_lowercase().contains(NO_ROOM) {
        next.seen.placement_id = fresh_id.into();
        return changed(next, Some(Event::Refused), false);
    }
    next.seen.refused_by.push(cluster.id.clone());
    next.seen.cluster_id.clear();
    next.seen.placement_id.clear();
    next.spec.versions.clear();
    next.seen.waiting_for = format!("another cluster: {} has no room", cluster.id);
    changed(next, Some(Event::Refused), true)
}

/// Its routes, if all of them lead to the cluster's own routers, by names that can be registered,
/// and each name to one place.
fn routes(instance: &Instance, cluster: &Cluster, report: &Report) -> Option<Vec<Route>> {
    let routes = report.routes.as_ref().filter(|routes| !routes.is_empty())?;
    let base = &cluster.spec.dns_name.to_ascii_lowercase();
    let host = &instance.seen.host;
    let own =
        |router: &str| base.is_empty() || router == base || router.ends_with(&format!(".{base}"));
    let mut targets = BTreeMap::new();
    let mut believed = Vec::new();
    for (prefix, router) in routes {
        // The zone tells them in small letters, and is compared with this.
        let router = router.to_ascii_lowercase();
        let domain = match prefix.as_str() {
            "" => host.clone(),
            prefix => format!("{}-{host}", prefix.to_ascii_lowercase()),
        };
        let other = targets.insert(domain.clone(), router.clone());
        let one_place = other.is_none_or(|other| other == router);
        if !own(&router) || !is_host(&router) || !is_host(&domain) || !one_place {
            return None;
        }
        believed.push(Route { domain, router });
    }
    Some(believed)
}

/// Whether a zone would take it.
fn is_host(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(letter);
    name.len() <= 253 && name.split('.').all(label)
}

/// Writes down what must go when the instance goes. False if it has had too many names: what is
/// not written down is not registered.
fn note_names(next: &mut Instance, routes: &[Route]) -> bool {
    let mut names = next.seen.names.clone();
    names.extend(routes.iter().map(|route| route.domain.clone()));
    let fits = names.len() <= NAMES_MAX;
    if fits {
        next.seen.names = names;
    }
    fits
}

fn upgrading(kind: &Kind, report: &Report) -> Vec<String> {
    let Some(versions) = &kind.file.versions else { return Vec::new() };
    let is = |reason: &str| report.reason.eq_ignore_ascii_case(reason);
    let now = versions.admin.iter().filter(|(_, admin)| is(&admin.updating));
    now.map(|(component, _)| component.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster;
    use crate::model::instance::{Seen, Spec};
    use kernel::Timestamp;
    use serde_json::json;

    fn kafka() -> Kind {
        Kind::read("kafka.yaml", include_str!("../../../../kinds/kafka.yaml")).unwrap()
    }

    fn cluster() -> Cluster {
        Cluster {
            id: "c1".into(),
            org: String::new(),
            owner: String::new(),
            name: "c1".into(),
            status: cluster::Status::Ready,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: cluster::Spec { dns_name: "apps.c1.example".into(), ..Default::default() },
            seen: Default::default(),
        }
    }

    fn instance(status: Status) -> Instance {
        Instance {
            id: "k1".into(),
            kind: "kafka".into(),
            org: "acme".into(),
            owner: "alice".into(),
            name: "demo".into(),
            status,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: Spec::default(),
            seen: Seen {
                cluster_id: "c1".into(),
                placement_id: "p1".into(),
                host: "demo-k1.example".into(),
                ..Seen::default()
            },
        }
    }

    fn says(status: &str, reason: &str, message: &str) -> Report {
        let condition =
            json!({"type": "ready", "status": status, "reason": reason, "message": message});
        Report::read(&kafka(), &json!({"conditions": [condition]}))
    }

    fn after(instance: &Instance, report: &Report, names: bool) -> Verdict {
        judge(instance, &kafka(), &cluster(), report, names, "fresh")
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
            ("True", "Suspended", Says::Suspended),
            ("True", "Error", Says::Ready),
            ("Unknown", "Error", Says::Unknown),
            ("False", "INSTALLING", Says::Installing),
            ("False", "Deleted", Says::Deleted),
            ("False", "Error", Says::Broken),
            ("False", "Rejected", Says::Rejected),
            ("", "", Says::Installing),
        ];
        for (status, reason, expected) in table {
            assert_eq!(says(status, reason, "").says, expected, "{status} {reason}");
        }
        assert_eq!(Report::read(&kafka(), &json!("nonsense")).says, Says::Installing);
        assert_eq!(
            Report::read(&kafka(), &json!({"conditions": [1, {}], "routes": 5})).routes,
            None
        );
    }

    #[test]
    fn ready_at_once_without_names_and_after_them_with_names() {
        let report = says("True", "", "");
        let provisioning = instance(Status::Provisioning);
        assert_eq!(event(after(&provisioning, &report, false)), Some(Event::Ready));
        let Verdict::Changed { next, event: None, wake: true } =
            after(&provisioning, &report, true)
        else {
            panic!("names come first")
        };
        assert!(next.seen.agent_ready && !next.seen.routes_created);
        let mut ready = instance(Status::Ready);
        ready.seen.agent_ready = true;
        ready.seen.routes_created = true;
        assert_eq!(after(&ready, &report, true), Verdict::Nothing, "nothing new writes nothing");
    }

    #[test]
    fn what_is_on_its_way_out_only_hears_that_it_is_gone() {
        assert_eq!(
            event(after(&instance(Status::Deprovision), &says("False", "Deleted", ""), true)),
            Some(Event::Removed)
        );
        for report in [says("True", "", ""), says("False", "Error", "x")] {
            assert_eq!(after(&instance(Status::Deprovision), &report, false), Verdict::Nothing);
        }
        let deleted = says("False", "Deleted", "");
        assert!(matches!(after(&instance(Status::Ready), &deleted, false), Verdict::Refused(_)));
        let mut early = instance(Status::Accepted);
        early.seen.placement_id.clear();
        assert!(matches!(after(&early, &says("True", "", ""), false), Verdict::Refused(_)));
    }

    #[test]
    fn another_clusters_instance_is_not_touched() {
        let mut elsewhere = instance(Status::Provisioning);
        elsewhere.seen.cluster_id = "c2".into();
        assert!(matches!(after(&elsewhere, &says("True", "", ""), false), Verdict::Refused(_)));
    }

    #[test]
    fn a_rejected_instance_is_placed_again_and_not_where_there_is_no_room() {
        let provisioning = instance(Status::Provisioning);
        let Verdict::Changed { next, .. } =
            after(&provisioning, &says("False", "Rejected", "later"), false)
        else {
            panic!()
        };
        assert_eq!(
            (next.seen.cluster_id.as_str(), next.seen.placement_id.as_str()),
            ("c1", "fresh")
        );
        let full = says("False", "Rejected", "Cluster has insufficient resources");
        let Verdict::Changed { next, wake: true, .. } = after(&provisioning, &full, false) else {
            panic!()
        };
        assert_eq!(
            (next.seen.cluster_id.as_str(), next.seen.refused_by.as_slice()),
            ("", &["c1".to_owned()][..])
        );
    }

    #[test]
    fn routes_that_lead_elsewhere_are_not_believed() {
        let routed = |router: &str| {
            let routes = json!([{"name": "x", "prefix": "admin-server", "router": router}]);
            let report = Report::read(&kafka(), &json!({"routes": routes}));
            match after(&instance(Status::Provisioning), &report, true) {
                Verdict::Changed { next, .. } => next.seen.routes,
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
    fn names_that_no_zone_would_take_are_not_believed_and_none_is_forgotten() {
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
        let mut instance = instance(Status::Provisioning);
        let long = "x".repeat(64);
        for prefix in ["a b", "a/../b", "a..", "*", "é", "a\n", &long] {
            assert!(routed(&instance, json!([route(prefix, router)])).is_none(), "{prefix:?}");
        }
        let torn = json!([route("a", router), route("A", "s.apps.c1.example")]);
        assert!(routed(&instance, torn).is_none(), "one name, two places");
        // Ever new names: at some point no more are taken, and all that were are known.
        for i in 0..2 * NAMES_MAX {
            let next = routed(&instance, json!([route(&format!("n{i}"), router)]));
            instance = next.unwrap_or(instance);
            let names = instance.seen.routes.iter().flatten().map(|route| &route.domain);
            assert!(names.into_iter().all(|name| instance.seen.names.contains(name)));
        }
        assert_eq!(instance.seen.names.len(), NAMES_MAX);
    }

    #[test]
    fn a_broken_instance_keeps_the_reason_and_recovers() {
        let report = says("False", "Error", "disk full");
        let Verdict::Changed { next, event: Some(Event::Broken), .. } =
            after(&instance(Status::Ready), &report, false)
        else {
            panic!()
        };
        assert!(next.seen.failed_reason.contains("disk full"));
        let mut failed = *next;
        failed.status = Status::Failed;
        assert_eq!(event(after(&failed, &says("True", "", ""), false)), Some(Event::Ready));
        assert_eq!(event(after(&instance(Status::Suspended), &report, false)), None);
    }
}
