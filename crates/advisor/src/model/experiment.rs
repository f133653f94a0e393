//! Experiments as objects: one container (or namespace) of one data source, and what was last
//! recommended for it.

use std::collections::BTreeMap;

use kernel::typed::Kind;
use kernel::{Key, Labels, Timestamp, labels};
use serde::{Deserialize, Serialize};

use super::inventory::Member;
use super::job::ResultRef;
use super::tenant::Tenant;

pub const EXPERIMENT: &str = "experiment";
/// Results that an experiment remembers.
pub const HISTORY_MAX: usize = 20;
/// Requests that wait for their recommendation, and answers that an experiment remembers.
pub const REQUESTS_MAX: usize = 16;

/// What an experiment is about, with the fields of `createExperiment`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    pub name: String,
    pub cluster: String,
    pub experiment_type: Type,
    /// None if results are uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datasource: Option<String>,
    pub performance_profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_profile: Option<String>,
    pub mode: String,
    pub target_cluster: String,
    pub measurement_min: u32,
    pub threshold: f64,
    pub objects: Vec<KubernetesObject>,
    /// The recommendations that were requested outside of jobs, oldest first. Those that have an
    /// answer are dropped by the next request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Request>,
}

/// One recommendation that was requested outside of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Counts the requests of the experiment, from 1.
    pub number: u32,
    /// The end of the window, in milliseconds. None: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ms: Option<i64>,
    /// The job that the caller made it for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// Where the result of a request is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub request: u32,
    pub result: ResultRef,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    Container,
    Namespace,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesObject {
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub workload_type: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerRef>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRef {
    pub container_image_name: String,
    pub container_name: String,
}

labels! {
    pub enum ExperimentPhase {
        /// Nothing was recommended yet.
        New = "new",
        Recommended = "recommended",
        Failed = "failed",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentStatus {
    /// Where the newest recommendation is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultRef>,
    /// Where the failure is, if the last attempt to recommend failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<ResultRef>,
    /// The job of the last attempt, if it was one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
    /// Why the last attempt to recommend failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Earlier results, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ResultRef>,
    /// What the last requests came to, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
}

/// The numbers of a result, to search and to compare: by term, then by engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub current: Amounts,
    pub terms: BTreeMap<String, BTreeMap<String, Amounts>>,
    /// The codes of all notices, ascending.
    pub codes: Vec<u32>,
    /// The language runtimes that were found, as in `OpenJDK Runtime Environment 21.0.2+13`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<String>,
}

/// Cores and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Amounts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
}

impl KubernetesObject {
    fn of_member(member: &Member) -> Self {
        let container = ContainerRef {
            container_image_name: member.image.clone(),
            container_name: member.container.clone(),
        };
        Self {
            workload_type: member.workload_type.clone(),
            name: member.workload.clone(),
            namespace: member.namespace.clone(),
            containers: if member.is_namespace() { Vec::new() } else { vec![container] },
        }
    }
}

impl ExperimentStatus {
    /// The results that it remembers.
    pub fn results(&self) -> impl Iterator<Item = &ResultRef> {
        self.result.iter().chain(&self.failed).chain(&self.history)
    }

    /// Whether this result was written down before.
    pub fn knows(&self, result: &ResultRef) -> bool {
        self.results().any(|known| known == result)
    }

    /// The number of the last request that has an answer.
    pub fn answered(&self) -> u32 {
        self.answers.last().map_or(0, |answer| answer.request)
    }
}

impl Kind for Experiment {
    type Phase = ExperimentPhase;
    type Status = ExperimentStatus;
}

/// The id of an experiment follows from its tenant and name, so that two cannot be made.
pub fn experiment_key(tenant: Tenant<'_>, name: &str) -> Key {
    tenant.key(EXPERIMENT, name)
}

impl Experiment {
    /// An experiment as bulk jobs make it.
    pub fn of_member(name: &str, datasource: &str, cluster: &str, member: &Member) -> Self {
        Self {
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            experiment_type: if member.is_namespace() { Type::Namespace } else { Type::Container },
            datasource: Some(datasource.to_owned()),
            performance_profile: PERFORMANCE_PROFILE.to_owned(),
            metadata_profile: Some(METADATA_PROFILE.to_owned()),
            mode: "monitor".to_owned(),
            target_cluster: "local".to_owned(),
            measurement_min: 15,
            threshold: 0.1,
            objects: vec![KubernetesObject::of_member(member)],
            requests: Vec::new(),
        }
    }

    /// Whether its results are uploaded, not read from a data source.
    pub fn is_remote(&self) -> bool {
        self.datasource.is_none()
    }

    /// The requests that have no answer yet.
    pub fn pending(&self, status: &ExperimentStatus) -> &[Request] {
        let answered = status.answered();
        let first = self.requests.partition_point(|request| request.number <= answered);
        &self.requests[first..]
    }

    /// The containers that it is about, or the namespace.
    pub fn members(&self) -> Vec<Member> {
        let member = |object: &KubernetesObject, container: &ContainerRef| Member {
            workload: object.name.clone(),
            workload_type: object.workload_type.clone(),
            container: container.container_name.clone(),
            image: container.container_image_name.clone(),
            ..Member::of_namespace(&object.namespace, 1)
        };
        let members = self.objects.iter().flat_map(|object| match self.experiment_type {
            Type::Namespace => vec![Member::of_namespace(&object.namespace, 1)],
            Type::Container => object.containers.iter().map(|it| member(object, it)).collect(),
        });
        members.collect()
    }

    /// What searches find it by.
    pub fn labels(&self) -> Labels {
        let mut labels = Labels::default();
        if let Some(datasource) = &self.datasource {
            labels.insert("datasource".into(), datasource.clone());
        }
        if let Some(object) = self.objects.first() {
            labels.insert("namespace".into(), object.namespace.clone());
            if !object.name.is_empty() {
                labels.insert("workload".into(), object.name.clone());
                labels.insert("type".into(), object.workload_type.clone());
            }
            if let Some(container) = object.containers.first() {
                labels.insert("container".into(), container.container_name.clone());
            }
        }
        labels
    }
}

pub const PERFORMANCE_PROFILE: &str = "resource-optimization-local-monitoring";
pub const METADATA_PROFILE: &str = "cluster-metadata-local-monitoring";
