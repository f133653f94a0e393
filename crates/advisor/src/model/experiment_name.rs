//! The names of experiments, made from a template such as
//! `%datasource%|%clustername%|%namespace%|%workloadname%(%workloadtype%)|%containername%`.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::{CLUSTER, Member};

pub const DEFAULT: &str =
    "%datasource%|%clustername%|%namespace%|%workloadname%(%workloadtype%)|%containername%";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Datasource,
    Cluster,
    Namespace,
    Workload,
    WorkloadType,
    Container,
    Label(String),
}

impl Default for NameTemplate {
    fn default() -> Self {
        Self::parse(DEFAULT)
    }
}

impl NameTemplate {
    /// Reads a template. A placeholder that is not known is text.
    pub fn parse(template: &str) -> Self {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('%') {
            text.push_str(before);
            let found = after.split_once('%').and_then(|(name, after)| Some((part(name)?, after)));
            rest = match found {
                Some((part, after)) => {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(part);
                    after
                }
                None => {
                    text.push('%');
                    after
                }
            };
        }
        text.push_str(rest);
        parts.push(Part::Text(text));
        parts.retain(|part| *part != Part::Text(String::new()));
        Self { parts }
    }

    /// The placeholders without which two containers may have the same name.
    pub fn missing(&self) -> Vec<&'static str> {
        let needed = [
            (Part::Namespace, "%namespace%"),
            (Part::Workload, "%workloadname%"),
            (Part::WorkloadType, "%workloadtype%"),
            (Part::Container, "%containername%"),
        ];
        let missing = needed.iter().filter(|(part, _)| !self.parts.contains(part));
        missing.map(|(_, placeholder)| *placeholder).collect()
    }

    /// The labels that names contain. These are labels of a data source's series: a template names them where
    /// one data source has several clusters or tenants.
    pub fn labels(&self) -> BTreeSet<String> {
        let label = |part: &Part| match part {
            Part::Label(key) => Some(key.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(label).collect()
    }

    /// The name of an experiment. A label that was not sent is shown as unknown if others were, and
    /// its placeholder stays if none was.
    pub fn name(
        &self,
        datasource: &str,
        member: &Member,
        labels: &BTreeMap<String, String>,
    ) -> String {
        if member.is_namespace() {
            return self.namespace_name(datasource, &member.namespace, labels);
        }
        let mut name = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Datasource => name.push_str(datasource),
                Part::Cluster => name.push_str(CLUSTER),
                Part::Namespace => name.push_str(&member.namespace),
                Part::Workload => name.push_str(&member.workload),
                Part::WorkloadType => name.push_str(&member.workload_type),
                Part::Container => name.push_str(&member.container),
                Part::Label(key) => match labels.get(key) {
                    Some(value) => name.push_str(value),
                    None if labels.is_empty() => name.push_str(&format!("%label:{key}%")),
                    None => name.push_str(&format!("unknown{key}")),
                },
            }
        }
        name
    }

    /// The name of the experiment of a whole namespace, which has no workload to be named after.
    fn namespace_name(
        &self,
        datasource: &str,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> String {
        let mut name = [datasource, CLUSTER, namespace].join("|");
        for key in self.labels() {
            name.push('|');
            match labels.get(&key) {
                Some(value) => name.push_str(value),
                None => name.push_str(&format!("unknown{key}")),
            }
        }
        name
    }
}

fn part(name: &str) -> Option<Part> {
    Some(match name {
        "datasource" => Part::Datasource,
        "clustername" => Part::Cluster,
        "namespace" => Part::Namespace,
        "workloadname" => Part::Workload,
        "workloadtype" => Part::WorkloadType,
        "containername" => Part::Container,
        label => {
            Part::Label(label.strip_prefix("label:").filter(|key| !key.is_empty())?.to_owned())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        Member {
            namespace: "monitoring".into(),
            workload: "%containername%".into(),
            workload_type: "deployment".into(),
            container: "kruize".into(),
            image: "quay.io/kruize:1".into(),
            pods: 1,
            shared_name: false,
        }
    }

    fn name(template: &str, labels: &[(&str, &str)]) -> String {
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        NameTemplate::parse(template).name("prometheus-1", &member(), &labels.collect())
    }

    #[test]
    fn values_are_not_read_as_templates() {
        let name = NameTemplate::default().name("prometheus-1", &member(), &BTreeMap::new());
        assert_eq!(name, "prometheus-1|default|monitoring|%containername%(deployment)|kruize");
        assert_eq!(NameTemplate::default().missing(), [""; 0]);
    }

    #[test]
    fn labels_are_unknown_only_if_others_were_sent() {
        let template = "%label:org_id%|%label:cluster%|%containername%";
        assert_eq!(name(template, &[("org_id", "7")]), "7|unknowncluster|kruize");
        assert_eq!(name(template, &[]), "%label:org_id%|%label:cluster%|kruize");
        assert_eq!(
            NameTemplate::parse(template).labels(),
            BTreeSet::from(["cluster".into(), "org_id".into()])
        );
        assert_eq!(
            NameTemplate::parse(template).missing(),
            ["%namespace%", "%workloadname%", "%workloadtype%"]
        );
    }

    #[test]
    fn what_is_not_a_placeholder_is_text() {
        assert_eq!(
            name("100%|%foo%|%%|%label:%|%containername%%", &[]),
            "100%|%foo%|%%|%label:%|kruize%"
        );
        assert_eq!(name("%foo%containername%", &[]), "%fookruize");
    }
}
