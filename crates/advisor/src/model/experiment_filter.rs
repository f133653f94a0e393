//! The body of `listExperiments`: only experiments that have all of it are shown.

use serde_json::Value;

use super::checked::{list, name};
use super::experiment::{Experiment, KubernetesObject};
use super::fields::{Fields, Invalid};

/// Objects and containers of a filter.
const ITEMS_MAX: usize = 100;

/// What an experiment must have. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExperimentFilter {
    cluster: Option<String>,
    objects: Vec<ObjectFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ObjectFilter {
    workload_type: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    containers: Vec<ContainerFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ContainerFilter {
    name: Option<String>,
    image: Option<String>,
}

impl TryFrom<Value> for ExperimentFilter {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new("", value)?;
        let objects = fields
            .read("kubernetes_objects", |path, value| list(path, value, ITEMS_MAX, object))?;
        let filter = Self {
            cluster: fields.read("cluster_name", name)?,
            objects: objects.unwrap_or_default(),
        };
        fields.finish()?;
        Ok(filter)
    }
}

fn object(path: &str, value: Value) -> Result<ObjectFilter, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let containers =
        fields.read("containers", |path, value| list(path, value, ITEMS_MAX, container))?;
    let whole = fields.read("namespaces", |path, value| {
        let mut fields = Fields::new(path, value)?;
        let found = fields.read("namespace", name)?;
        fields.finish()?;
        Ok(found)
    })?;
    let namespace = fields.read("namespace", name)?;
    let filter = ObjectFilter {
        workload_type: fields.read("type", name)?,
        name: fields.read("name", name)?,
        namespace: namespace.or(whole.flatten()),
        containers: containers.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(filter)
}

fn container(path: &str, value: Value) -> Result<ContainerFilter, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let filter = ContainerFilter {
        name: fields.read("container_name", name)?,
        image: fields.read("container_image_name", name)?,
    };
    fields.finish()?;
    Ok(filter)
}

impl ExperimentFilter {
    pub fn matches(&self, experiment: &Experiment) -> bool {
        let has = |object: &ObjectFilter| experiment.objects.iter().any(|of| object.matches(of));
        is(&self.cluster, &experiment.cluster) && self.objects.iter().all(has)
    }
}

impl ObjectFilter {
    fn matches(&self, object: &KubernetesObject) -> bool {
        let has = |container: &ContainerFilter| {
            object.containers.iter().any(|of| {
                is(&container.name, &of.container_name)
                    && is(&container.image, &of.container_image_name)
            })
        };
        is(&self.workload_type, &object.workload_type)
            && is(&self.name, &object.name)
            && is(&self.namespace, &object.namespace)
            && self.containers.iter().all(has)
    }
}

fn is(wanted: &Option<String>, found: &str) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted == found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::inventory::Member;

    #[test]
    fn an_experiment_must_have_all_of_a_filter() {
        let member = Member {
            workload: "web".into(),
            workload_type: "deployment".into(),
            container: "nginx".into(),
            image: "nginx:1".into(),
            ..Member::of_namespace("shop", 1)
        };
        let experiment = Experiment::of_member("e", "p", "default", &member);
        let container = |name: &str| json!([{ "containers": [{ "container_name": name }] }]);
        for (filter, expected) in [
            (json!({}), true),
            (json!({ "cluster_name": "default" }), true),
            (json!({ "cluster_name": "other" }), false),
            (json!({ "kubernetes_objects": [{ "type": "deployment", "name": "web" }] }), true),
            (json!({ "kubernetes_objects": [{ "namespace": "other" }] }), false),
            (json!({ "kubernetes_objects": [{ "namespaces": { "namespace": "shop" } }] }), true),
            (json!({ "kubernetes_objects": container("nginx") }), true),
            (json!({ "kubernetes_objects": container("proxy") }), false),
        ] {
            let read = ExperimentFilter::try_from(filter.clone()).unwrap();
            assert_eq!(read.matches(&experiment), expected, "{filter}");
        }
        let unknown = json!({ "kubernetes_objects": [{ "kind": "pod" }] });
        let error = ExperimentFilter::try_from(unknown).unwrap_err();
        assert_eq!(error.field, "kubernetes_objects[0].kind");
    }
}
