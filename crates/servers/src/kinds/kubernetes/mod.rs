//! A Kubernetes control plane with nodes that are only played: objects, controllers and
//! schedules are real, containers are not.

mod access;
mod api;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::golang;
use crate::install::{CURL, GO};
use crate::versions::KUBERNETES;
use crate::{Build, Cache, Install, Place, Server};
use api::Api;

pub const SERVER: Server = Server {
    name: "kubernetes",
    version: KUBERNETES,
    cost: "built with Go, 8 to 14 minutes of CPU",
    needs: &[GO, CURL],
    installed: |cache| binary(cache).exists(),
    install,
    start,
    stop_signals: &["TERM"],
};

fn binary(cache: &Cache) -> PathBuf {
    cache.dir("kubernetes", KUBERNETES).join("kubernetes")
}

const SOURCE: [(&str, &str); 3] = [
    ("main.go", include_str!("../../../assets/kubernetes/main.go")),
    ("go.mod", include_str!("../../../assets/kubernetes/go.mod")),
    ("go.sum", include_str!("../../../assets/kubernetes/go.sum")),
];

fn install(install: &Install) -> Result<()> {
    install.cache.put("kubernetes", KUBERNETES, |dir| {
        let source = golang::write(&SOURCE, dir)?;
        let build =
            Build { name: "kubernetes", dir: &source, package: ".", tags: "", set: &version() };
        install.go_build(dir, build)?;
        Ok(std::fs::remove_dir_all(source)?)
    })
}

/// Without these it calls itself v0.0.0-master, which clients do not understand.
fn version() -> String {
    let mut numbers = KUBERNETES.split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let facts = [
        ("gitMajor", major.into()),
        ("gitMinor", minor.into()),
        ("gitVersion", format!("v{KUBERNETES}")),
        ("gitTreeState", "clean".into()),
        ("gitCommit", "0".repeat(40)),
        ("buildDate", "2026-01-01T00:00:00Z".into()),
    ];
    let mut set = Vec::new();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        set.extend(facts.iter().map(|(name, value)| format!("-X {package}.{name}={value}")));
    }
    set.join(" ")
}

/// What every cluster knows from the start: the garbage collector looks for new kinds only now and
/// then. The option `crds` names a file or a directory of more.
const CRDS: &[&str] = &[include_str!("../../../assets/kubernetes/widget.yaml")];
const NODES: [&str; 2] = ["node-0", "node-1"];

fn start(place: &Place) -> Result<()> {
    let cluster = Cluster { place, binary: binary(&place.cache) };
    access::create(place)?;
    let etcd = cluster.etcd()?;
    cluster.api_server(&etcd)?;
    let api = Api::new(place)?;
    place.ready("its API answers", || api.get("/readyz"))?;
    let more = more_crds(place)?;
    for crds in CRDS.iter().copied().chain(more.iter().map(String::as_str)) {
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crds)?;
    }
    place.ready("its custom resources are served", || api.established())?;
    cluster.controllers()?;
    cluster.nodes(&api)?;
    place.ready("its nodes and accounts are there", || api.populated(&NODES))?;
    place.tell("", format!("https://127.0.0.1:{}", place.port("api")?))?;
    place.tell("kubeconfig", access::kubeconfig(place, "admin").display())
}

fn more_crds(place: &Place) -> Result<Vec<String>> {
    let Some(path) = place.option("crds").map(Path::new) else { return Ok(Vec::new()) };
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        paths = std::fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect();
        paths.sort();
    }
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).with_context(|| format!("{} is closed", path.display()))
    };
    paths.into_iter().map(read).collect()
}

struct Cluster<'a> {
    place: &'a Place,
    binary: PathBuf,
}

impl Cluster<'_> {
    fn spawn(&self, component: &str, flags: &[String]) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg(component).args(flags).env("HOME", &self.place.dir);
        self.place.spawn(component, &mut command).map(drop)
    }

    /// Answers its address.
    fn etcd(&self) -> Result<String> {
        let place = self.place;
        let clients = format!("http://127.0.0.1:{}", place.port("etcd")?);
        let peers = format!("http://127.0.0.1:{}", place.port("etcd-peers")?);
        let mut flags = vec![
            "--name=etcd".to_owned(),
            "--log-level=warn".into(),
            format!("--data-dir={}", place.dir.join("etcd").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=etcd={peers}"),
        ];
        if !place.durable {
            // Written all the same: what a killed one has acknowledged is there afterwards.
            flags.push("--unsafe-no-fsync".into());
        }
        self.spawn("etcd", &flags)?;
        Ok(clients)
    }

    fn api_server(&self, etcd: &str) -> Result<()> {
        let flags = flags(&[
            ("etcd-servers", etcd),
            ("bind-address", "127.0.0.1"),
            ("advertise-address", "127.0.0.1"),
            ("secure-port", &self.place.port("api")?.to_string()),
            // It would refuse to make a loopback address known to pods.
            ("endpoint-reconciler-type", "none"),
            ("tls-cert-file", "pki/api.crt"),
            ("tls-private-key-file", "pki/api.key"),
            ("client-ca-file", "pki/ca.crt"),
            ("authorization-mode", "RBAC"),
            ("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            ("service-account-key-file", "pki/accounts.pub"),
            ("service-account-signing-key-file", "pki/accounts.key"),
            ("service-cluster-ip-range", "10.0.0.0/24"),
            ("requestheader-client-ca-file", "pki/front-proxy.crt"),
            ("requestheader-allowed-names", "front-proxy-client"),
            ("requestheader-username-headers", "X-Remote-User"),
            ("requestheader-group-headers", "X-Remote-Group"),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            ("kubelet-certificate-authority", "pki/ca.crt"),
            ("kubelet-client-certificate", "pki/admin.crt"),
            ("kubelet-client-key", "pki/admin.key"),
            ("kubelet-preferred-address-types", "InternalIP"),
            ("profiling", "false"),
        ]);
        self.spawn("kube-apiserver", &flags)
    }

    fn controllers(&self) -> Result<()> {
        let own = |name: &str, port: u16| {
            let kubeconfig = access::kubeconfig(self.place, name).display().to_string();
            flags(&[
                ("kubeconfig", &kubeconfig),
                ("authentication-kubeconfig", &kubeconfig),
                ("authorization-kubeconfig", &kubeconfig),
                ("bind-address", "127.0.0.1"),
                ("secure-port", &port.to_string()),
                ("leader-elect", "false"),
                ("profiling", "false"),
            ])
        };
        let mut controllers = own("controllers", self.place.port("controllers")?);
        // It writes there; the default is a directory of the system.
        let plugins = self.place.dir.join("plugins").display().to_string();
        controllers.extend(flags(&[
            ("service-account-private-key-file", "pki/accounts.key"),
            ("root-ca-file", "pki/ca.crt"),
            ("use-service-account-credentials", "true"),
            ("kube-api-qps", "500"),
            ("kube-api-burst", "1000"),
            ("flex-volume-plugin-dir", &plugins),
        ]));
        self.spawn("kube-controller-manager", &controllers)?;
        self.spawn("kube-scheduler", &own("scheduler", self.place.port("scheduler")?))
    }

    fn nodes(&self, api: &Api) -> Result<()> {
        let (place, port) = (self.place, self.place.port("nodes")?);
        let config = place.dir.join("kwok.yaml");
        // As a container runtime writes it.
        let log = place.dir.join("pod.log");
        std::fs::write(&log, "2026-01-01T00:00:00.000000000Z stdout F what a pod says\n")?;
        let logs = format!(
            "---\napiVersion: kwok.x-k8s.io/v1alpha1\nkind: ClusterLogs\nmetadata: {{name: all}}\n\
             spec: {{logs: [{{logsFile: {}}}]}}\n",
            log.display()
        );
        let stages = include_str!("../../../assets/kubernetes/stages.yaml");
        std::fs::write(&config, format!("{stages}{logs}"))?;
        let flags = flags(&[
            ("kubeconfig", &access::kubeconfig(place, "kwok").display().to_string()),
            ("config", &config.display().to_string()),
            ("manage-all-nodes", "true"),
            ("node-lease-duration-seconds", "40"),
            ("node-ip", "127.0.0.1"),
            ("node-port", &port.to_string()),
            ("server-address", &format!("127.0.0.1:{port}")),
            ("cidr", "10.244.0.0/16"),
            ("tls-cert-file", "pki/kubelet.crt"),
            ("tls-private-key-file", "pki/kubelet.key"),
        ]);
        self.spawn("kwok", &flags)?;
        let room = "{cpu: '32', memory: 256Gi, pods: '1000'}";
        for name in NODES {
            let node = format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: \
                 {{kubernetes.io/hostname: {name}, kubernetes.io/os: linux}}}}, \
                 status: {{allocatable: {room}, capacity: {room}}}}}"
            );
            api.create("/api/v1/nodes", &node)?;
        }
        Ok(())
    }
}

fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_the_one_that_is_built() {
        let (_, modules) = SOURCE[1];
        assert!(modules.contains(&format!("k8s.io/kubernetes v{KUBERNETES}\n")), "{modules}");
    }
}
