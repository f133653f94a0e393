//! Kubernetes: a namespace for each test, and in it an account of limited rights.

use std::net::SocketAddr;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;

use super::{Instance, unique};

pub struct Kubernetes {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn kubernetes() -> Option<Kubernetes> {
    Instance::shared("kubernetes").map(|server| Kubernetes { server })
}

/// The definition of a kind that keeps whatever it is given, and has a status.
pub fn open_crd(group: &str, kind: &str, plural: &str) -> serde_json::Value {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": open, "status": open } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

impl Kubernetes {
    /// The option `crds` names a YAML file, or a directory of them, with more custom resources.
    pub async fn private(&self, options: &[(&str, &str)]) -> Kubernetes {
        Kubernetes { server: self.server.private(options).await }
    }

    /// As in `127.0.0.1:6443`.
    pub fn address(&self) -> &str {
        self.server.get("").trim_start_matches("https://")
    }

    pub fn admin(&self) -> Access {
        let path = self.server.get("kubeconfig");
        let kubeconfig = std::fs::read_to_string(path).expect("its kubeconfig can be read");
        Access { kubeconfig, address: self.address().into() }
    }

    /// With an account that may do everything there but hand out rights.
    pub async fn namespace(&self) -> Namespace {
        let rule = |groups: &[&str]| PolicyRule {
            api_groups: Some(groups.iter().map(|group| (*group).into()).collect()),
            resources: Some(vec!["*".into()]),
            verbs: vec!["*".into()],
            ..PolicyRule::default()
        };
        let groups = ["", "apps", "batch", "coordination.k8s.io", "events.k8s.io", "mainstay.test"];
        self.namespace_with(vec![rule(&groups)]).await
    }

    /// With an account that may do this and nothing else.
    pub async fn namespace_with(&self, rules: Vec<PolicyRule>) -> Namespace {
        let (name, admin) = (unique(), self.admin());
        let client = admin.client().await;
        let namespace = NamespaceObject { metadata: named(&name), ..Default::default() };
        create(Api::all(client.clone()), &namespace).await;
        let account = ServiceAccount { metadata: named(ACCOUNT), ..Default::default() };
        create(Api::namespaced(client.clone(), &name), &account).await;
        let role = Role { metadata: named(ACCOUNT), rules: Some(rules) };
        create(Api::namespaced(client.clone(), &name), &role).await;
        let binding = RoleBinding {
            metadata: named(ACCOUNT),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".into()),
                kind: "Role".into(),
                name: ACCOUNT.into(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".into(),
                name: ACCOUNT.into(),
                namespace: Some(name.clone()),
                ..Subject::default()
            }]),
        };
        create(Api::namespaced(client.clone(), &name), &binding).await;
        let account = admin.limited(&token(&client, &name, ACCOUNT).await, &name);
        Namespace { name, admin, account }
    }
}

const ACCOUNT: &str = "mainstay";

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

async fn create<K>(api: Api<K>, object: &K)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let made = api.create(&PostParams::default(), object).await;
    made.unwrap_or_else(|error| panic!("creating {object:?}: {error}"));
}

async fn token(client: &Client, namespace: &str, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..Default::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let made = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let status = made.expect("a token for its account").status.expect("it is answered");
    status.token.expect("it is there")
}

/// How someone reaches a cluster.
#[derive(Clone)]
pub struct Access {
    kubeconfig: String,
    address: String,
}

impl Access {
    /// The text of a kubeconfig that needs no other file.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    pub async fn client(&self) -> Client {
        // Another crate may have brought a second one, and then neither is the default.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig).expect("it is a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Client::try_from(config.expect("it is complete")).expect("a client for it")
    }

    /// The same through another loopback port, such as [`crate::chaos::Proxy`]'s.
    pub fn via(&self, proxy: SocketAddr) -> Access {
        let address = proxy.to_string();
        Access { kubeconfig: self.kubeconfig.replace(&self.address, &address), address }
    }

    /// As a service account that someone made.
    pub async fn of_account(&self, namespace: &str, account: &str) -> Access {
        let token = token(&self.client().await, namespace, account).await;
        self.limited(&token, namespace)
    }

    fn limited(&self, token: &str, namespace: &str) -> Access {
        let mut kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig).expect("it is a kubeconfig");
        let cluster = kubeconfig.clusters.remove(0).cluster.expect("it names a cluster");
        let ca = cluster.certificate_authority_data.expect("it names an authority");
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\n\
             clusters: [{{name: test, cluster: {{server: 'https://{address}', \
             certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: {ACCOUNT}, user: {{token: {token}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: {ACCOUNT}, \
             namespace: {namespace}}}}}]\n\
             current-context: test\n",
            address = self.address,
        );
        Access { kubeconfig, address: self.address.clone() }
    }
}

/// Deleted with the value.
pub struct Namespace {
    pub name: String,
    /// The cluster's administrator.
    pub admin: Access,
    /// A service account, bound to rights in this namespace alone.
    pub account: Access,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (name, admin) = (self.name.clone(), self.admin.clone());
        let delete = async move {
            let namespaces: Api<NamespaceObject> = Api::all(admin.client().await);
            // A private one may be down at the end of its test. The rest happens by itself.
            let now = DeleteParams::default();
            let deleted = namespaces.delete(&name, &now);
            let _ = tokio::time::timeout(std::time::Duration::from_secs(10), deleted).await;
        };
        super::at_the_end(delete);
    }
}
