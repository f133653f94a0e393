//! A cluster as a description: what runs in it, and how much of what each part uses.

/// What is loaded. The same description gives the same samples.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub seed: u64,
    pub namespaces: Vec<Namespace>,
}

#[derive(Debug, Clone, Default)]
pub struct Namespace {
    pub name: String,
    pub quota: Option<Quota>,
    pub workloads: Vec<Workload>,
}

/// The hard limits of a resource quota.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quota {
    pub requests: Resources,
    pub limits: Resources,
}

#[derive(Debug, Clone)]
pub struct Workload {
    pub name: String,
    pub kind: Kind,
    pub pods: u32,
    pub containers: Vec<Container>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
}

#[derive(Debug, Clone)]
pub struct Container {
    pub name: String,
    pub image: String,
    /// Cores of one pod.
    pub cpu: Load,
    /// Cores that one pod was denied.
    pub throttled: Load,
    /// Bytes of one pod's working set. Four fifths of it are resident.
    pub memory: Load,
    pub requests: Resources,
    pub limits: Resources,
    pub gpu: Option<Gpu>,
    pub jvm: Option<Jvm>,
}

/// Cores and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Resources {
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
}

/// One accelerator for each pod.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// As in `NVIDIA-A100-SXM4-40GB`.
    pub model: String,
    /// Percent.
    pub cores: Load,
    /// Percent.
    pub memory_copy: Load,
    /// MiB.
    pub frame_buffer: Load,
}

#[derive(Debug, Clone)]
pub struct Jvm {
    pub runtime: String,
    pub vendor: String,
    pub version: String,
}

/// How much of something is used over time: around a mean, up and down with the day, and by chance.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    pub mean: f64,
    /// How far a day's wave goes from the mean.
    pub wave: f64,
    /// How much more chance adds at most.
    pub chance: f64,
}

impl Load {
    pub fn steady(mean: f64) -> Load {
        Load { mean, ..Load::default() }
    }

    pub fn daily(mean: f64, wave: f64) -> Load {
        Load { mean, wave, chance: 0.0 }
    }

    pub fn with_chance(self, chance: f64) -> Load {
        Load { chance, ..self }
    }

    pub fn scaled(self, factor: f64) -> Load {
        let Load { mean, wave, chance } = self;
        Load { mean: mean * factor, wave: wave * factor, chance: chance * factor }
    }

    /// Its value at a time; `key` makes one series' chance its own.
    pub fn at(&self, time_s: i64, key: u64) -> f64 {
        const DAY_S: i64 = 86_400;
        let of_day = time_s.rem_euclid(DAY_S) as f64 / DAY_S as f64;
        let wave = self.wave * (of_day * std::f64::consts::TAU).sin();
        let chance = if self.chance == 0.0 {
            0.0
        } else {
            self.chance * unit(key ^ time_s.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        (self.mean + wave + chance).max(0.0)
    }
}

/// From zero to one, well mixed (splitmix64).
fn unit(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

impl Kind {
    /// As Kubernetes writes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Deployment => "Deployment",
            Kind::ReplicaSet => "ReplicaSet",
            Kind::StatefulSet => "StatefulSet",
            Kind::DaemonSet => "DaemonSet",
            Kind::Job => "Job",
        }
    }
}

impl Workload {
    pub fn new(kind: Kind, name: &str, pods: u32, containers: Vec<Container>) -> Workload {
        Workload { name: name.into(), kind, pods, containers }
    }

    pub fn pod(&self, number: u32) -> String {
        match self.kind {
            Kind::StatefulSet => format!("{}-{number}", self.name),
            Kind::Deployment => format!("{}-x{number}", self.replica_set()),
            _ => format!("{}-x{number}", self.name),
        }
    }

    /// Between a deployment and its pods.
    pub fn replica_set(&self) -> String {
        format!("{}-7d9c5", self.name)
    }
}

impl Container {
    /// With neither requests nor limits.
    pub fn new(name: &str, cpu: Load, memory: Load) -> Container {
        Container {
            name: name.into(),
            image: format!("registry.example/{name}:1"),
            cpu,
            throttled: Load::default(),
            memory,
            requests: Resources::default(),
            limits: Resources::default(),
            gpu: None,
            jvm: None,
        }
    }

    pub fn requests(self, cpu: f64, memory: f64) -> Container {
        Container { requests: Resources { cpu: Some(cpu), memory: Some(memory) }, ..self }
    }

    pub fn limits(self, cpu: f64, memory: f64) -> Container {
        Container { limits: Resources { cpu: Some(cpu), memory: Some(memory) }, ..self }
    }

    pub fn throttled(self, throttled: Load) -> Container {
        Container { throttled, ..self }
    }
}
