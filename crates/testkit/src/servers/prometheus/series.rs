//! The series of a description: what a cluster's exporters would have reported, and what
//! the recording rules would have made of it.

use super::cluster::{Cluster, Container, Kind, Load, Namespace, Quota, Resources, Workload};

/// When there are samples: the last at `end_s`, and one at each step before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// Seconds since 1970.
    pub end_s: i64,
    pub length_s: i64,
    pub step_s: i64,
}

impl History {
    /// The advisor's longest term, at the pace of large clusters: 4321 samples of each series.
    pub fn fifteen_days(end_s: i64) -> History {
        History { end_s, length_s: 15 * 86_400, step_s: 300 }
    }

    /// Enough for a recommendation of the shortest term.
    pub fn two_hours(end_s: i64) -> History {
        History { end_s, length_s: 7_200, step_s: 60 }
    }

    pub fn times(self) -> impl Iterator<Item = i64> {
        let steps = self.length_s / self.step_s;
        (0..=steps).map(move |step| self.end_s - (steps - step) * self.step_s)
    }
}

#[derive(Debug, Clone)]
pub struct Series {
    pub metric: &'static str,
    pub labels: Vec<(&'static str, String)>,
    signal: Signal,
}

#[derive(Debug, Clone)]
enum Signal {
    Gauge(Load, u64),
    /// Grows by the load for each second.
    Counter(Load, u64),
}

impl Series {
    pub fn is_counter(&self) -> bool {
        matches!(self.signal, Signal::Counter(..))
    }

    /// Times in seconds, and values.
    pub fn samples(&self, history: History) -> impl Iterator<Item = (i64, f64)> {
        let (load, key, counts) = match self.signal {
            Signal::Gauge(load, key) => (load, key, false),
            Signal::Counter(load, key) => (load, key, true),
        };
        let mut total = 0.0;
        history.times().map(move |time_s| {
            let value = load.at(time_s, key);
            total += value * history.step_s as f64;
            (time_s, if counts { total } else { value })
        })
    }
}

impl Cluster {
    /// Series of the same metric are neighbours.
    pub fn series(&self) -> Vec<Series> {
        let mut all = Collected { seed: self.seed, series: Vec::new() };
        for namespace in &self.namespaces {
            all.namespace(namespace);
        }
        all.series.sort_by_key(|series| series.metric);
        all.series
    }

    /// What makes a container's chance in a pod its own.
    pub fn key(&self, namespace: &str, pod: &str, container: &str) -> u64 {
        key(self.seed, namespace, pod, container)
    }
}

fn key(seed: u64, namespace: &str, pod: &str, container: &str) -> u64 {
    // FNV-1a.
    let text = [namespace, pod, container].join("/");
    text.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

struct Collected {
    seed: u64,
    series: Vec<Series>,
}

type Labels<'a> = &'a [(&'static str, &'a str)];

/// Where the exporters are.
const STATE: (&str, &str) = ("job", "kube-state-metrics");
const CADVISOR: [(&str, &str); 2] = [("job", "kubelet"), ("metrics_path", "/metrics/cadvisor")];

impl Collected {
    fn add(&mut self, metric: &'static str, labels: &[Labels], signal: Signal) {
        let mut labels: Vec<(&'static str, String)> =
            labels.concat().into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        labels.sort();
        self.series.push(Series { metric, labels, signal });
    }

    fn fact(&mut self, metric: &'static str, labels: &[Labels], value: f64) {
        self.add(metric, labels, Signal::Gauge(Load::steady(value), 0));
    }

    fn namespace(&mut self, namespace: &Namespace) {
        let of = [STATE, ("namespace", &namespace.name)];
        for (phase, value) in [("Active", 1.0), ("Terminating", 0.0)] {
            self.fact("kube_namespace_status_phase", &[&of, &[("phase", phase)]], value);
        }
        if let Some(quota) = &namespace.quota {
            self.quota(&of, quota);
        }
        for workload in &namespace.workloads {
            self.workload(&namespace.name, workload);
        }
    }

    fn quota(&mut self, of: Labels, quota: &Quota) {
        let hard = [
            ("requests.cpu", quota.requests.cpu),
            ("requests.memory", quota.requests.memory),
            ("limits.cpu", quota.limits.cpu),
            ("limits.memory", quota.limits.memory),
        ];
        for (resource, value) in hard {
            if let Some(value) = value {
                let what = [("resourcequota", "quota"), ("resource", resource), ("type", "hard")];
                self.fact("kube_resourcequota", &[of, &what], value);
            }
        }
    }

    fn workload(&mut self, namespace: &str, workload: &Workload) {
        let of = ("namespace", namespace);
        let (owner_kind, owner_name) = match workload.kind {
            Kind::Deployment => ("ReplicaSet", workload.replica_set()),
            kind => (kind.name(), workload.name.clone()),
        };
        if workload.kind == Kind::Deployment {
            let owner = [("owner_kind", "Deployment"), ("owner_name", &workload.name)];
            let set = [STATE, of, ("replicaset", &owner_name)];
            self.fact("kube_replicaset_owner", &[&set, &owner], 1.0);
        }
        for number in 0..workload.pods {
            let (pod, node) = (workload.pod(number), format!("node-{}", number % 3));
            let of_pod = [STATE, of, ("pod", &pod)];
            let owner = [("owner_kind", owner_kind), ("owner_name", &owner_name)];
            self.fact("kube_pod_owner", &[&of_pod, &owner], 1.0);
            let recorded = [
                of,
                ("pod", &pod),
                ("workload", &workload.name),
                ("workload_type", &workload.kind.name().to_lowercase()),
            ];
            self.fact("namespace_workload_pod:kube_pod_owner:relabel", &[&recorded], 1.0);
            self.fact("kube_pod_info", &[&of_pod, &[("node", &node)]], 1.0);
            for (phase, value) in [("Running", 1.0), ("Pending", 0.0), ("Failed", 0.0)] {
                self.fact("kube_pod_status_phase", &[&of_pod, &[("phase", phase)]], value);
            }
            for container in &workload.containers {
                self.container(&of_pod, &node, container);
            }
        }
    }

    /// `pod` are the labels that tell of it, the exporter's name first.
    fn container(&mut self, pod: Labels, node: &str, container: &Container) {
        let ours = [("container", container.name.as_str())];
        let image = [("image", container.image.as_str())];
        self.fact("kube_pod_container_info", &[pod, &ours, &image], 1.0);
        self.fact("kube_pod_container_status_ready", &[pod, &ours], 1.0);
        let requests = "kube_pod_container_resource_requests";
        self.resources(requests, &[pod, &ours].concat(), container.requests);
        let limits = "kube_pod_container_resource_limits";
        self.resources(limits, &[pod, &ours].concat(), container.limits);

        let place = &pod[1..];
        let key = key(self.seed, place[0].1, place[1].1, &container.name);
        let seen: [Labels; 4] = [&CADVISOR, place, &ours, &image];
        let seconds = "container_cpu_usage_seconds_total";
        self.add(seconds, &seen, Signal::Counter(container.cpu, key));
        let throttled = "container_cpu_cfs_throttled_seconds_total";
        self.add(throttled, &seen, Signal::Counter(container.throttled, key));
        let memory = container.memory;
        let set = "container_memory_working_set_bytes";
        self.add(set, &seen, Signal::Gauge(memory, key));
        self.add("container_memory_rss", &seen, Signal::Gauge(memory.scaled(0.8), key));
        let recorded: [Labels; 3] = [place, &ours, &[("node", node)]];
        for rule in [
            "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate",
            "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate",
        ] {
            self.add(rule, &recorded, Signal::Gauge(container.cpu, key));
        }
        self.gpu(place, node, container, key);
        if let Some(jvm) = &container.jvm {
            let what =
                [("runtime", &*jvm.runtime), ("vendor", &*jvm.vendor), ("version", &*jvm.version)];
            for metric in ["jvm_info", "jvm_info_total"] {
                self.fact(metric, &[place, &ours, &what], 1.0);
            }
        }
    }

    fn resources(&mut self, metric: &'static str, of: Labels, resources: Resources) {
        let kinds = [("cpu", "core", resources.cpu), ("memory", "byte", resources.memory)];
        for (resource, unit, value) in kinds {
            if let Some(value) = value {
                self.fact(metric, &[of, &[("resource", resource), ("unit", unit)]], value);
            }
        }
    }

    fn gpu(&mut self, place: Labels, node: &str, container: &Container, key: u64) {
        let Some(gpu) = &container.gpu else { return };
        let uuid = format!("GPU-{key:016x}");
        let labels = [
            ("Hostname", node),
            ("UUID", &uuid),
            ("device", "nvidia0"),
            ("exported_container", &container.name),
            ("exported_namespace", place[0].1),
            ("exported_pod", place[1].1),
            ("modelName", &gpu.model),
        ];
        for (metric, load) in [
            ("DCGM_FI_DEV_GPU_UTIL", gpu.cores),
            ("DCGM_FI_DEV_MEM_COPY_UTIL", gpu.memory_copy),
            ("DCGM_FI_DEV_FB_USED", gpu.frame_buffer),
        ] {
            self.add(metric, &[&labels], Signal::Gauge(load, key));
        }
    }
}
