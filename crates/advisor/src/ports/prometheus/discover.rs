//! Discovery: the three queries that ask what runs in a cluster, and what their answers say together.

use std::collections::{BTreeMap, BTreeSet};

use super::profile::{Profile, ProfileError};
use super::promql;
use super::scan::{Answer, Labels};
use super::template::{call, owners, substitute};
use crate::model::filter::{Matcher, Matchers, Test};
use crate::model::inventory::{Container, Inventory, WorkloadKey};

/// The three queries. Each is asked for an instant, or for a range in steps of 15 minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    pub namespaces: String,
    pub workloads: String,
    pub containers: String,
}

impl Discovery {
    /// Whether no query is the same, because each has a window that the profile leaves open.
    pub fn differs(&self, other: &Self) -> bool {
        self.namespaces != other.namespaces
            && self.workloads != other.workloads
            && self.containers != other.containers
    }
}

const MINUTES: &str = "$MEASUREMENT_DURATION_IN_MIN$";

/// The workloads that have a pod with the labels asked for.
const LABELLED_WORKLOADS: &str = "sum by (namespace, workload, workload_type) (\
     max_over_time(kube_pod_labels{pod!=\"\" POD_LABELS}[$MEASUREMENT_DURATION_IN_MIN$m]) \
     * on (namespace, pod) group_left(workload, workload_type) \
     max_over_time(namespace_workload_pod:kube_pod_owner:relabel{workload!=\"\" ADDITIONAL_LABEL}[$MEASUREMENT_DURATION_IN_MIN$m]))";

/// Writes the queries of a metadata profile.
///
/// Namespaces are filtered in all three, which the intersection of their answers does anyway.
/// Workloads and labels of pods are not filtered in the query for containers: it must see a container
/// that shares its name with one that is asked for.
pub fn queries(
    profile: &Profile,
    matchers: &Matchers,
    minutes: u32,
) -> Result<Discovery, ProfileError> {
    let series = and(&matchers.series);
    // The first matcher of each dimension is that the label is present, as in the profile.
    let namespace = and(matchers.namespace.get(1..).unwrap_or_default());
    let with_namespace = |own: &[Matcher]| format!("{}{namespace}", promql::matchers(own));
    let minutes = (MINUTES, minutes.to_string());
    let added = [(" ADDITIONAL_LABEL", series.clone()), ("ADDITIONAL_LABEL", series.clone())];

    let fill = |template: &str, own: &[(&str, String)]| {
        let slots: Vec<_> = own.iter().chain(&added).chain([&minutes]).cloned().collect();
        substitute(template, &slots)
    };

    // Without it the filter by labels would be ignored.
    for variable in ["namespace", "workload", "container"] {
        let place = "ADDITIONAL_LABEL";
        if !series.is_empty() && !profile.containing(variable)?.contains(place) {
            return Err(ProfileError::NoPlace { variable: variable.to_owned(), place });
        }
    }

    let place = "namespace!=\"\"";
    let template = self::template(profile, "namespace", place)?;
    let namespaces = fill(template, &[(place, promql::matchers(&matchers.namespace))]);

    let place = "workload!=\"\"";
    let template = if matchers.pod_labels.is_empty() {
        self::template(profile, "workload", place)?
    } else {
        LABELLED_WORKLOADS
    };
    let pod_labels = format!("{}{namespace}{series}", and(&matchers.pod_labels));
    let own = [(place, with_namespace(&matchers.workload)), (" POD_LABELS", pod_labels)];
    let workloads = fill(&one_owner(template), &own);

    let template = self::template(profile, "container", "container!=\"\"")?;
    let own = [
        ("container!=\"\"", with_namespace(&matchers.container)),
        (place, with_namespace(&[Matcher::new("workload", Test::Present)])),
    ];
    let containers = fill(&one_owner(template), &own);
    Ok(Discovery { namespaces, workloads, containers })
}

/// The expression of a dimension, which must have the matcher that the filter takes the place of:
/// without it a job would be about everything.
fn template<'a>(
    profile: &'a Profile,
    dimension: &str,
    place: &'static str,
) -> Result<&'a str, ProfileError> {
    let template = profile.containing(dimension)?;
    if template.contains(place) {
        Ok(template)
    } else {
        Err(ProfileError::NoPlace { variable: dimension.to_owned(), place })
    }
}

/// Matchers that come after others.
fn and(matchers: &[Matcher]) -> String {
    if matchers.is_empty() { String::new() } else { format!(", {}", promql::matchers(matchers)) }
}

/// Joins one owner of each pod only, where the template joins all that it had within the range.
fn one_owner(template: &str) -> String {
    const JOIN: &str = "group_left(workload, workload_type)";
    const OWNERS: &str = "namespace_workload_pod:kube_pod_owner:relabel{";
    let joined = template.split_once(JOIN).and_then(|(before, after)| {
        let (owner, rest) = call(after.trim_start())?;
        let selector = &owner[owner.find(OWNERS)?..];
        let selector = &selector[..=selector.find('}')?];
        Some(format!("{before}{JOIN} {}{rest}", owners(selector)))
    });
    joined.unwrap_or_else(|| template.to_owned())
}

/// What the three answers say together: workloads count only in namespaces that were found, and
/// containers only in workloads that were, each by its namespace, name and type.
pub fn inventory(namespaces: &Answer, workloads: &Answer, containers: &Answer) -> Inventory {
    let mut inventory = Inventory::default();
    for (labels, ..) in namespaces.series() {
        if let Some(namespace) = text(labels, "namespace") {
            inventory.namespaces.entry(namespace).or_default();
        }
    }
    for (labels, ..) in workloads.series() {
        let (Some(namespace), Some(key)) = (text(labels, "namespace"), workload(labels)) else {
            continue;
        };
        if let Some(workloads) = inventory.namespaces.get_mut(&namespace) {
            workloads.entry(key).or_default();
        }
    }
    for (place, found) in found(containers) {
        let workloads = inventory.namespaces.get_mut(&place.namespace);
        let Some(containers) = workloads.and_then(|found| found.get_mut(&place.workload)) else {
            continue;
        };
        containers.insert(place.container, found);
    }
    inventory
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    namespace: String,
    workload: WorkloadKey,
    container: String,
}

/// An image of a container, ordered by how well it says what the container is now.
#[derive(PartialEq, PartialOrd)]
struct Image {
    seen_ms: i64,
    pods: f64,
    name: String,
}

/// All containers of the answer. One that has several images, such as during a roll-out, is one
/// container, with the newest image and of these the one of most pods.
fn found(answer: &Answer) -> Vec<(Place, Container)> {
    let mut images: BTreeMap<Place, Vec<Image>> = BTreeMap::new();
    for (labels, times, values) in answer.series() {
        let (Some(namespace), Some(workload), Some(container)) =
            (text(labels, "namespace"), workload(labels), text(labels, "container"))
        else {
            continue;
        };
        let Some(seen_ms) = times.last() else { continue };
        let pods = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let image = Image { seen_ms: *seen_ms, pods, name: labels.get("image").to_owned() };
        images.entry(Place { namespace, workload, container }).or_default().push(image);
    }
    let mut owners: BTreeMap<(&str, &str), BTreeSet<&WorkloadKey>> = BTreeMap::new();
    for place in images.keys() {
        let name = (place.namespace.as_str(), place.container.as_str());
        owners.entry(name).or_default().insert(&place.workload);
    }
    let shared: BTreeSet<(String, String)> = owners
        .into_iter()
        .filter(|(_, owners)| owners.len() > 1)
        .map(|((namespace, container), _)| (namespace.to_owned(), container.to_owned()))
        .collect();
    let container = |(place, images): (Place, Vec<Image>)| {
        let newest_ms = images.iter().map(|image| image.seen_ms).max();
        let now = images.iter().filter(|image| Some(image.seen_ms) == newest_ms);
        let pods: f64 = now.map(|image| image.pods).sum();
        let newest = images.into_iter().max_by(|a, b| a.partial_cmp(b).expect("none is NaN"));
        let name = (place.namespace.clone(), place.container.clone());
        let container = Container {
            image: newest.map(|image| image.name).unwrap_or_default(),
            // The cast saturates.
            pods: (pods.ceil() as u32).max(1),
            shared_name: shared.contains(&name),
        };
        (place, container)
    };
    images.into_iter().map(container).collect()
}

fn text(labels: &Labels, name: &str) -> Option<String> {
    let value = labels.get(name);
    (!value.is_empty()).then(|| value.to_owned())
}

fn workload(labels: &Labels) -> Option<WorkloadKey> {
    let name = text(labels, "workload")?;
    Some(WorkloadKey { name, workload_type: labels.get("workload_type").to_owned() })
}
