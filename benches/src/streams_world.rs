//! A cluster of its own for each part of the streams' figures: classes, templates, streams, the
//! operator as a process, and a bare client as the baseline.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use parking_lot::Mutex;
use serde_json::{Value, json};
use streams::model::GROUP;

use crate::server;

pub const NAMESPACE: &str = "bench";
const CONNECTIONS: usize = 20;
/// Nothing here takes so long.
pub const TIMEOUT: Duration = Duration::from_secs(900);

pub struct World {
    pub client: kube::Client,
    kubeconfig: PathBuf,
    dir: tempfile::TempDir,
    _server: testkit::kubernetes::Kubernetes,
}

/// What a watch has seen of the streams and their Jobs.
#[derive(Default)]
pub struct Seen {
    /// When a stream's first Job was seen.
    pub first_job: HashMap<String, Instant>,
    /// All Jobs that were ever there.
    pub jobs: HashSet<String>,
    pub running: HashMap<String, Instant>,
    pub suspended: HashSet<String>,
}

pub struct Operator {
    child: Child,
    probes: String,
    metrics: String,
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resource(plural: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural)
}

impl World {
    pub async fn new() -> anyhow::Result<World> {
        let shared =
            testkit::kubernetes().context("`cargo xtask bench streams` starts Kubernetes")?;
        let dir = tempfile::tempdir_in(".")?;
        let crds = dir.path().join("crds");
        std::fs::create_dir(&crds)?;
        std::fs::write(crds.join("operator.yaml"), streams::model::crd::yaml())?;
        std::fs::write(crds.join("bench.yaml"), serde_json::to_string(&stream_crd())?)?;
        let crds = std::fs::canonicalize(crds)?;
        let server = shared.private(&[("crds", &crds.display().to_string())]).await;
        let access = server.admin();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, access.kubeconfig())?;
        let world = World { client: access.client().await, kubeconfig, dir, _server: server };
        world.furnish().await?;
        Ok(world)
    }

    async fn furnish(&self) -> anyhow::Result<()> {
        let namespaces = self.everywhere(ApiResource::erase::<Namespace>(&()));
        make(&namespaces, json!({ "metadata": { "name": NAMESPACE } })).await?;
        let templates = self.here(resource("streamingjobtemplates", "StreamingJobTemplate"));
        for image in ["ok", "hang"] {
            let spec = json!({ "backoffLimit": 0, "template": pod(image) });
            make(&templates, json!({ "metadata": { "name": image }, "spec": { "spec": spec } }))
                .await?;
        }
        let classes = self.everywhere(resource("streamclasses", "StreamClass"));
        let spec = json!({
            "apiGroupRef": GROUP, "apiVersion": "v1", "kindRef": "BenchStream",
            "pluralName": "bench-streams", "secretRefs": ["secretRef"],
        });
        make(&classes, json!({ "metadata": { "name": "bench" }, "spec": spec })).await?;
        Ok(())
    }

    fn everywhere(&self, resource: ApiResource) -> Of {
        Of { api: Api::all_with(self.client.clone(), &resource), resource }
    }

    fn here(&self, resource: ApiResource) -> Of {
        Of { api: Api::namespaced_with(self.client.clone(), NAMESPACE, &resource), resource }
    }

    pub fn streams(&self) -> Of {
        self.here(resource("bench-streams", "BenchStream"))
    }

    pub fn jobs(&self) -> Of {
        self.here(ApiResource::erase::<Job>(&()))
    }

    /// Starts the operator and waits until it is ready; how long that took.
    pub async fn operator(&self) -> anyhow::Result<(Operator, Duration)> {
        let port = || -> anyhow::Result<String> {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            Ok(listener.local_addr()?.to_string())
        };
        let (probes, metrics) = (port()?, port()?);
        let log = std::fs::File::create(self.dir.path().join("operator.log"))?;
        let begun = Instant::now();
        let child = Command::new(server::binary("MAINSTAY_BIN")?)
            .args(["operator", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .env("ARCANE_OPERATOR__PROBES__ADDR", &probes)
            .env("ARCANE_OPERATOR__TELEMETRY__METRICS_BIND_ADDRESS", &metrics)
            .env("ARCANE_OPERATOR__LEASE__NAMESPACE", NAMESPACE)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let operator = Operator { child, probes, metrics };
        let leading = || async {
            let ready = reqwest::get(format!("http://{}/health/ready", operator.probes)).await;
            ready.is_ok_and(|answer| answer.status().is_success())
                && operator.calls().await.is_ok_and(|calls| calls.contains_key("leading"))
        };
        while !leading().await {
            anyhow::ensure!(begun.elapsed() < TIMEOUT, "the operator is not ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok((operator, begun.elapsed()))
    }

    /// Watches streams and Jobs from here on.
    pub fn look(&self) -> Arc<Mutex<Seen>> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (jobs, streams) = (self.jobs().api, self.streams().api);
        let (of_jobs, of_streams) = (seen.clone(), seen.clone());
        tokio::spawn(async move {
            let mut events = watcher(jobs, watcher::Config::default()).boxed();
            while let Ok(Some(event)) = events.try_next().await {
                if let watcher::Event::Apply(job) | watcher::Event::InitApply(job) = event {
                    let mut seen = of_jobs.lock();
                    let name = job.metadata.name.unwrap_or_default();
                    seen.first_job.entry(name).or_insert_with(Instant::now);
                    seen.jobs.insert(job.metadata.uid.unwrap_or_default());
                }
            }
        });
        tokio::spawn(async move {
            let mut events = watcher(streams, watcher::Config::default()).boxed();
            while let Ok(Some(event)) = events.try_next().await {
                if let watcher::Event::Apply(stream) | watcher::Event::InitApply(stream) = event {
                    let name = stream.metadata.name.unwrap_or_default();
                    let mut seen = of_streams.lock();
                    match stream.data["status"]["phase"].as_str() {
                        Some("Running") => {
                            seen.suspended.remove(&name);
                            seen.running.entry(name).or_insert_with(Instant::now);
                        }
                        Some("Suspended") => drop(seen.suspended.insert(name)),
                        _ => {}
                    }
                }
            }
        });
        seen
    }

    /// As fast as a bare client can, over twenty connections.
    pub async fn make_all(
        &self,
        of: &Of,
        manifests: Vec<Value>,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let made = futures::stream::iter(manifests).map(|manifest| make(of, manifest));
        made.buffer_unordered(CONNECTIONS).try_collect().await
    }

    pub async fn patch_all(&self, patches: Vec<(String, Value, bool)>) -> anyhow::Result<()> {
        let streams = &self.streams().api;
        let patched = futures::stream::iter(patches).map(|(name, patch, status)| async move {
            let params = PatchParams::default();
            if status {
                streams.patch_status(&name, &params, &Patch::Merge(patch)).await?
            } else {
                streams.patch(&name, &params, &Patch::Merge(patch)).await?
            };
            anyhow::Ok(())
        });
        patched.buffer_unordered(CONNECTIONS).try_collect().await
    }

    /// Jobs that have ended.
    pub async fn count_ended(&self) -> anyhow::Result<usize> {
        let jobs = self.jobs().api.list(&ListParams::default()).await?.items;
        let ended = |job: &&DynamicObject| job.data["status"]["completionTime"].is_string();
        Ok(jobs.iter().filter(ended).count())
    }

    pub async fn count_jobs(&self) -> anyhow::Result<usize> {
        let params = ListParams::default().labels("arcane/stream-kind=BenchStream");
        Ok(self.jobs().api.list_metadata(&params).await?.items.len())
    }
}

impl Operator {
    /// Stops it gracefully: it exits and releases its Lease.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Requests to the API server so far, by verb and what; `leading` if it does.
    pub async fn calls(&self) -> anyhow::Result<HashMap<String, f64>> {
        let text = reqwest::get(format!("http://{}/metrics", self.metrics)).await?.text().await?;
        let mut calls = HashMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let value: f64 = value.parse().unwrap_or(0.0);
            if name.contains("leading") && value > 0.0 {
                calls.insert("leading".into(), 1.0);
            }
            if name.contains("api_calls") {
                *calls.entry(name.into()).or_default() += value;
            }
        }
        Ok(calls)
    }

    /// Requests since then: all, and those that write; leases and watches do not count.
    pub async fn since(&self, before: &HashMap<String, f64>) -> anyhow::Result<(f64, f64)> {
        let mut all = (0.0, 0.0);
        for (name, count) in self.calls().await? {
            let more = count - before.get(&name).copied().unwrap_or(0.0);
            if name == "leading" || name.contains("lease") || name.contains("\"watch\"") {
                continue;
            }
            all.0 += more;
            if ["create", "patch", "delete", "update"].iter().any(|verb| name.contains(verb)) {
                all.1 += more;
            }
        }
        Ok(all)
    }
}

async fn make(of: &Of, manifest: Value) -> anyhow::Result<DynamicObject> {
    let object = typed(manifest, &of.resource)?;
    Ok(of.api.create(&PostParams::default(), &object).await?)
}

/// A manifest of that kind.
fn typed(mut manifest: Value, of: &ApiResource) -> anyhow::Result<DynamicObject> {
    manifest["apiVersion"] = json!(of.api_version);
    manifest["kind"] = json!(of.kind);
    Ok(serde_json::from_value(manifest)?)
}

/// Where objects of a kind are, and what they are called.
#[derive(Clone)]
pub struct Of {
    pub api: Api<DynamicObject>,
    resource: ApiResource,
}

pub fn pod(image: &str) -> Value {
    json!({ "spec": {
        "restartPolicy": "Never",
        "containers": [{
            "name": "stream", "image": format!("mock:{image}"),
            "env": [{ "name": "APPLICATION_VERSION", "value": "1" }],
        }],
    } })
}

/// A stream as real ones are: about a kilobyte of it.
pub fn stream(name: &str, suspended: bool) -> Value {
    let reference = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    json!({ "metadata": { "name": name }, "spec": {
        "execution": {
            "layoutVersion": "v2", "suspended": suspended,
            "streamingBackend": { "changeCapture": {
                "jobTemplateRef": reference("hang"), "backfillJobTemplateRef": reference("ok"),
            } },
        },
        "secretRef": { "name": "password" },
        "source": { "connectionUrl": "jdbc:sqlserver://a;b=c<d>&e", "schemaName": "dbo", "tableName": name },
        "sink": { "targetTableFullName": format!("ice.test.{name}"), "sortedBy": ["a", "b", "c"] },
        "throughput": { "advisedRate": "1000 per 15 second", "text": "x".repeat(600) },
    } })
}

fn stream_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("bench-streams.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "plural": "bench-streams", "singular": "bench-stream", "kind": "BenchStream" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "status": { "type": "object", "properties": {
                        "phase": { "type": "string" },
                        "configurationHash": { "type": "string" },
                        "conditions": { "type": "array", "items": {
                            "type": "object", "required": ["status", "type"], "properties": {
                                "message": { "type": "string" }, "type": { "type": "string" },
                                "status": { "type": "string", "enum": ["True", "False"] },
                            },
                        } },
                    } },
                } } },
            }],
        },
    })
}
