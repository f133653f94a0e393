//! What is measured, and how the measurements of several pods become one.

/// What is measured. For a namespace the same metrics are sums over its pods, and requests and
/// limits are its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    CpuUsage,
    CpuThrottle,
    CpuRequest,
    CpuLimit,
    MemoryUsage,
    MemoryRss,
    MemoryRequest,
    MemoryLimit,
    /// Pods of a namespace.
    Pods,
    AcceleratorCoreUsage,
    AcceleratorMemoryUsage,
    AcceleratorFrameBufferUsage,
    JvmInfo,
    JvmInfoTotal,
}

impl Metric {
    pub const COUNT: usize = Metric::JvmInfoTotal as usize + 1;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aggregate {
    Sum,
    Avg,
    Min,
    Max,
}

impl Aggregate {
    pub const COUNT: usize = Aggregate::Max as usize + 1;

    /// What profiles call it.
    pub fn name(self) -> &'static str {
        match self {
            Aggregate::Sum => "sum",
            Aggregate::Avg => "avg",
            Aggregate::Min => "min",
            Aggregate::Max => "max",
        }
    }
}
