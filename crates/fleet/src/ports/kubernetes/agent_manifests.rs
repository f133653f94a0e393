//! The objects that run the agent on a cluster: namespace, RBAC, parameters, Deployment.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Config, ObjectRef};

/// On all objects that we apply to a cluster.
pub const CLUSTER_LABEL: &str = "mainstay.io/cluster";
const APP: &str = "mainstay-agent";
const PARAMETERS: &str = "mainstay-agent-parameters";
const PULL_SECRET: &str = "mainstay-pull-secret";
/// Where the agent finds its parameters.
pub const PARAMETERS_DIR: &str = "/etc/mainstay/agent";

/// The inputs of the objects of one cluster.
pub struct AgentManifests<'a> {
    pub config: &'a Config,
    pub cluster: &'a str,
    /// The parameters of the agent, by the names that existing agents use.
    pub parameters: BTreeMap<String, String>,
    /// The text of the pull secret; empty if none is needed.
    pub pull_secret: String,
    /// The kinds of objects that the agent applies.
    pub kinds: Vec<GroupVersionKind>,
}

impl AgentManifests<'_> {
    /// In the order of application.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![self.namespace(), self.account(), self.role(), self.binding()];
        if !self.pull_secret.is_empty() {
            let data = json!({ ".dockerconfigjson": STANDARD.encode(&self.pull_secret) });
            let kind = "kubernetes.io/dockerconfigjson";
            objects.push(self.secret(PULL_SECRET, kind, data));
        }
        let encoded = self.parameters.iter().map(|(name, value)| (name, STANDARD.encode(value)));
        let data = json!(encoded.collect::<BTreeMap<_, _>>());
        objects.push(self.secret(PARAMETERS, "Opaque", data));
        objects.push(self.deployment());
        objects
    }

    /// The objects whose deletion deletes all others.
    pub fn roots(&self) -> Vec<ObjectRef> {
        let rbac = "rbac.authorization.k8s.io/v1";
        let name = &self.config.namespace;
        vec![
            ObjectRef::new("v1", "Namespace", "", name),
            ObjectRef::new(rbac, "ClusterRoleBinding", "", name),
            ObjectRef::new(rbac, "ClusterRole", "", name),
        ]
    }

    fn object(&self, api_version: &str, kind: &str, name: &str, namespaced: bool) -> Value {
        let mut object = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/managed-by": "mainstay",
                    CLUSTER_LABEL: self.cluster,
                },
            },
        });
        if namespaced {
            object["metadata"]["namespace"] = self.config.namespace.clone().into();
        }
        object
    }

    fn namespace(&self) -> Value {
        self.object("v1", "Namespace", &self.config.namespace, false)
    }

    fn account(&self) -> Value {
        self.object("v1", "ServiceAccount", APP, true)
    }

    /// Allows no more than the kinds of services need.
    fn role(&self) -> Value {
        let every = ["get", "list", "watch", "create", "update", "patch", "delete"];
        let rule = |group: &str, resources: &[String], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
        let mut by_group: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for kind in &self.kinds {
            let plural = ApiResource::from_gvk(kind).plural;
            let resources = by_group.entry(&kind.group).or_default();
            if !resources.contains(&plural) {
                resources.push(plural);
            }
        }
        let mut rules = vec![
            rule("", &["namespaces".into()], &every),
            rule("", &["pods".into(), "events".into()], &["get", "list", "watch"]),
        ];
        for (group, mut resources) in by_group {
            resources.sort();
            rules.push(rule(group, &resources, &every));
        }
        let api = "rbac.authorization.k8s.io/v1";
        let mut role = self.object(api, "ClusterRole", &self.config.namespace, false);
        role["rules"] = rules.into();
        role
    }

    fn binding(&self) -> Value {
        let (api, group) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
        let namespace = &self.config.namespace;
        let mut binding = self.object(api, "ClusterRoleBinding", namespace, false);
        binding["roleRef"] = json!({ "apiGroup": group, "kind": "ClusterRole", "name": namespace });
        let account = json!({ "kind": "ServiceAccount", "name": APP, "namespace": namespace });
        binding["subjects"] = json!([account]);
        binding
    }

    fn secret(&self, name: &str, kind: &str, data: Value) -> Value {
        let mut secret = self.object("v1", "Secret", name, true);
        secret["type"] = kind.into();
        secret["data"] = data;
        secret
    }

    fn deployment(&self) -> Value {
        let app = json!({ "app.kubernetes.io/name": APP });
        let mut labels = app.clone();
        labels[CLUSTER_LABEL] = self.cluster.into();
        let mut pod = json!({
            "serviceAccountName": APP,
            "securityContext": { "runAsNonRoot": true },
            "containers": [{
                "name": "agent",
                "image": self.config.image,
                "args": ["agent", "--parameters", PARAMETERS_DIR],
                "volumeMounts": [{ "name": "parameters", "mountPath": PARAMETERS_DIR, "readOnly": true }],
                "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } },
            }],
            "volumes": [{ "name": "parameters", "secret": { "secretName": PARAMETERS } }],
        });
        if !self.pull_secret.is_empty() {
            pod["imagePullSecrets"] = json!([{ "name": PULL_SECRET }]);
        }
        // Changed parameters restart it.
        let digest = Sha256::digest(json!(self.parameters).to_string());
        let mut deployment = self.object("apps/v1", "Deployment", APP, true);
        deployment["spec"] = json!({
            "replicas": 1,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": app },
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": { "mainstay.io/parameters": format!("{digest:x}") },
                },
                "spec": pod,
            },
        });
        deployment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_may_do_what_the_kinds_need_and_no_more() {
        let config = Config::default();
        let kinds = [
            GroupVersionKind::gvk("apps", "v1", "StatefulSet"),
            GroupVersionKind::gvk("", "v1", "Service"),
            GroupVersionKind::gvk("apps", "v1", "Deployment"),
        ];
        let parameters = [("sso-secret".to_owned(), "hunter2".to_owned())].into();
        let agent_manifests = AgentManifests {
            config: &config,
            cluster: "c1",
            parameters,
            pull_secret: String::new(),
            kinds: kinds.into(),
        };
        let objects = agent_manifests.objects();
        let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let rules = role["rules"].as_array().unwrap();
        assert_eq!(rules.len(), 4);
        assert_eq!(rules[3]["resources"], json!(["deployments", "statefulsets"]));
        assert!(!json!(rules).to_string().contains('*'));
        assert!(!json!(objects).to_string().contains("hunter2"), "only encoded");
    }
}
