//! The elements of `listRecommendations` and `generateRecommendations`.
//!
//! They borrow what they show and are written straight to the serialiser, so a large answer streams.
//! What is not known is left out.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::model::advice::Advice;
use crate::model::inventory::{CLUSTER, Member};
use crate::model::notice::{Notice, Notices};
use crate::model::recommendation::{
    Available, BoxPlot, EngineResult, Formats, MigProfile, Plots, Recommendation, Resources,
    Sizing, Slot, Snapshot, TermResult,
};
use crate::model::time;

/// The version of the interface.
const API_VERSION: &str = "v2.0";
/// The version of the recommendations in it.
const RECOMMENDATIONS_VERSION: &str = "1.0";

/// An experiment and what is recommended for it.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    pub cluster: &'a str,
    pub experiment: &'a str,
    pub subject: Subject<'a>,
    /// Without one, the element says that there is not enough data.
    pub recommendation: Option<&'a Recommendation>,
}

/// What an experiment is about.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    Container(&'a Member),
    Namespace(&'a str),
}

impl<'a> Subject<'a> {
    pub fn of(member: &'a Member) -> Self {
        if member.is_namespace() {
            Subject::Namespace(&member.namespace)
        } else {
            Subject::Container(member)
        }
    }
}

/// A whole answer: one element for each advice.
#[derive(Debug, Clone, Copy)]
pub struct Elements<'a>(pub &'a [Advice]);

impl<'a> From<&'a Advice> for Element<'a> {
    fn from(advice: &'a Advice) -> Self {
        Self {
            cluster: CLUSTER,
            experiment: &advice.experiment,
            subject: Subject::of(&advice.member),
            recommendation: advice.outcome.as_ref().ok(),
        }
    }
}

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Element::from))
    }
}

impl Serialize for Element<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let recommendations = Recommendations::of(self.recommendation);
        let (experiment_type, object) = match self.subject {
            Subject::Container(member) => {
                ("container", KubernetesObject::of_container(member, recommendations))
            }
            Subject::Namespace(name) => {
                ("namespace", KubernetesObject::of_namespace(name, recommendations))
            }
        };
        let shape = ElementShape {
            cluster_name: self.cluster,
            experiment_type,
            kubernetes_objects: [object],
            version: API_VERSION,
            experiment_name: self.experiment,
        };
        shape.serialize(serializer)
    }
}

#[derive(Serialize)]
struct ElementShape<'a> {
    cluster_name: &'a str,
    experiment_type: &'static str,
    kubernetes_objects: [KubernetesObject<'a>; 1],
    version: &'static str,
    experiment_name: &'a str,
}

/// A namespace has an empty list of containers besides its own recommendations.
#[derive(Serialize)]
struct KubernetesObject<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    workload_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    namespace: &'a str,
    #[serde(serialize_with = "list")]
    containers: Option<Container<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<Namespace<'a>>,
}

#[derive(Serialize)]
struct Container<'a> {
    container_image_name: &'a str,
    container_name: &'a str,
    recommendations: Recommendations<'a>,
}

#[derive(Serialize)]
struct Namespace<'a> {
    namespace: &'a str,
    recommendations: Recommendations<'a>,
}

impl<'a> KubernetesObject<'a> {
    fn of_container(member: &'a Member, recommendations: Recommendations<'a>) -> Self {
        Self {
            workload_type: Some(&member.workload_type),
            name: Some(&member.workload),
            namespace: &member.namespace,
            containers: Some(Container {
                container_image_name: &member.image,
                container_name: &member.container,
                recommendations,
            }),
            namespaces: None,
        }
    }

    fn of_namespace(namespace: &'a str, recommendations: Recommendations<'a>) -> Self {
        let namespaces = Some(Namespace { namespace, recommendations });
        Self { workload_type: None, name: None, namespace, containers: None, namespaces }
    }
}

/// A list of one or none.
fn list<T: Serialize, S: Serializer>(it: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(it)
}

#[derive(Serialize)]
struct Recommendations<'a> {
    version: &'static str,
    notifications: Notifications,
    data: Data<'a>,
}

impl<'a> Recommendations<'a> {
    fn of(found: Option<&'a Recommendation>) -> Self {
        let none = || Notices::from_iter([Notice::NotEnoughData]);
        Self {
            version: RECOMMENDATIONS_VERSION,
            notifications: Notifications(found.map_or_else(none, |it| it.notices)),
            data: Data(found.and_then(|it| Some((it.latest.as_ref()?, &it.formats)))),
        }
    }
}

/// The recommendations by the time that they are for.
struct Data<'a>(Option<(&'a Snapshot, &'a Formats)>);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = self.0.map(|(snapshot, formats)| {
            (Time(snapshot.monitoring_end_ms), SnapshotShape::of(snapshot, formats))
        });
        serializer.collect_map(entry)
    }
}

#[derive(Serialize)]
struct SnapshotShape<'a> {
    notifications: Notifications,
    monitoring_end_time: Time,
    current: Sections<'a>,
    recommendation_terms: Terms<'a>,
}

impl<'a> SnapshotShape<'a> {
    fn of(found: &'a Snapshot, formats: &'a Formats) -> Self {
        Self {
            notifications: Notifications(found.notices),
            monitoring_end_time: Time(found.monitoring_end_ms),
            current: Sections::of(&found.current, formats),
            recommendation_terms: Terms(&found.terms, formats),
        }
    }
}

struct Terms<'a>(&'a [TermResult], &'a Formats);

impl Serialize for Terms<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|it| (it.term.as_str(), Term::of(it, self.1))))
    }
}

#[derive(Serialize)]
struct Term<'a> {
    duration_in_hours: f64,
    notifications: Notifications,
    #[serde(skip_serializing_if = "Option::is_none")]
    monitoring_start_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recommendation_engines: Option<Engines<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plots: Option<PlotsShape<'a>>,
}

impl<'a> Term<'a> {
    fn of(found: &'a TermResult, formats: &'a Formats) -> Self {
        let available = found.available.as_ref();
        let engines = |it: &'a Available| Engines {
            cost: Engine::of(&it.cost, formats),
            performance: Engine::of(&it.performance, formats),
        };
        let plots = available.and_then(|it| it.plots.as_ref());
        Self {
            duration_in_hours: found.duration_hours,
            notifications: Notifications(found.notices),
            monitoring_start_time: available.map(|it| Time(it.monitoring_start_ms)),
            recommendation_engines: available.map(engines),
            plots: plots.map(|it| PlotsShape::of(it, formats)),
        }
    }
}

#[derive(Serialize)]
struct Engines<'a> {
    cost: Engine<'a>,
    performance: Engine<'a>,
}

#[derive(Serialize)]
struct Engine<'a> {
    pods_count: i32,
    confidence_level: f64,
    config: Sections<'a>,
    variation: Sections<'a>,
    notifications: Notifications,
}

impl<'a> Engine<'a> {
    fn of(found: &'a EngineResult, formats: &'a Formats) -> Self {
        let mut config = Sections::of(&found.config, formats);
        config.limits.accelerator = found.accelerator.as_ref();
        Self {
            pods_count: found.pods_count,
            confidence_level: found.confidence_level,
            config,
            variation: Sections::of(&found.variation, formats),
            notifications: Notifications(found.notices),
        }
    }
}

#[derive(Serialize)]
struct Sections<'a> {
    #[serde(skip_serializing_if = "Section::is_empty")]
    requests: Section<'a>,
    #[serde(skip_serializing_if = "Section::is_empty")]
    limits: Section<'a>,
}

impl<'a> Sections<'a> {
    fn of(found: &Sizing, formats: &'a Formats) -> Self {
        let section = |resources| Section { resources, accelerator: None, formats };
        Self { requests: section(found.requests), limits: section(found.limits) }
    }
}

struct Section<'a> {
    resources: Resources,
    accelerator: Option<&'a MigProfile>,
    formats: &'a Formats,
}

impl Section<'_> {
    fn is_empty(&self) -> bool {
        self.resources == Resources::default() && self.accelerator.is_none()
    }
}

impl Serialize for Section<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(amount) = self.resources.cpu {
            map.serialize_entry("cpu", &Quantity { amount, format: self.formats.cpu.as_deref() })?;
        }
        if let Some(amount) = self.resources.memory {
            let format = self.formats.memory.as_deref();
            map.serialize_entry("memory", &Quantity { amount, format })?;
        }
        if let Some(profile) = self.accelerator {
            let slice = Quantity { amount: MigProfile::AMOUNT, format: Some(MigProfile::FORMAT) };
            map.serialize_entry(&profile.resource(), &slice)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Quantity<'a> {
    amount: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a str>,
}

#[derive(Serialize)]
struct PlotsShape<'a> {
    datapoints: usize,
    plots_data: PlotsData<'a>,
}

impl<'a> PlotsShape<'a> {
    fn of(found: &'a Plots, formats: &'a Formats) -> Self {
        Self { datapoints: found.slots.len(), plots_data: PlotsData(&found.slots, formats) }
    }
}

struct PlotsData<'a>(&'a [Slot], &'a Formats);

impl Serialize for PlotsData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(slots, formats) = self;
        serializer
            .collect_map(slots.iter().map(|slot| (Time(slot.end_ms), Boxes::of(slot, formats))))
    }
}

/// Empty where nothing was measured.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Boxes<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_usage: Option<BoxShape<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_usage: Option<BoxShape<'a>>,
}

impl<'a> Boxes<'a> {
    fn of(slot: &Slot, formats: &'a Formats) -> Self {
        let usage = slot.usage.as_ref();
        Self {
            cpu_usage: usage.map(|it| BoxShape::of(&it.cpu, formats.cpu.as_deref())),
            memory_usage: usage.map(|it| BoxShape::of(&it.memory, formats.memory.as_deref())),
        }
    }
}

#[derive(Serialize)]
struct BoxShape<'a> {
    min: f64,
    q1: f64,
    median: f64,
    q3: f64,
    max: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a str>,
}

impl<'a> BoxShape<'a> {
    fn of(found: &BoxPlot, format: Option<&'a str>) -> Self {
        let BoxPlot { min, q1, median, q3, max } = *found;
        Self { min, q1, median, q3, max, format }
    }
}

struct Notifications(Notices);

#[derive(Serialize)]
struct Notification {
    #[serde(rename = "type")]
    level: &'static str,
    message: &'static str,
    code: u32,
}

impl Serialize for Notifications {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The keys are text also where keys may be numbers, as in YAML.
        serializer.collect_map(self.0.iter().map(|notice| {
            let (level, message) = (notice.level().as_str(), notice.message());
            let code = notice.code();
            (code.to_string(), Notification { level, message, code })
        }))
    }
}

/// Milliseconds since 1970.
struct Time(i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No sample has a time that no calendar has; one that had would be shown as the number.
        match Timestamp::from_millisecond(self.0) {
            Ok(at) => f.write_str(&time::format(at)),
            Err(_) => self.0.fmt(f),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
