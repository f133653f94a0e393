//! What a recommendation tells its reader besides numbers: codes, levels and messages of Kruize 0.10.

use std::fmt;

/// How serious a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Info,
    Notice,
    Warning,
    Error,
    Critical,
}

impl Level {
    /// The `type` of a notification on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Notice => "notice",
            Level::Warning => "warning",
            Level::Error => "error",
            Level::Critical => "critical",
        }
    }
}

/// Makes the enum, the list of all and the facts about each from one table, ordered by code.
macro_rules! notices {
    ($($name:ident = $code:literal, $level:ident, $message:literal;)*) => {
        /// One notification that Kruize 0.10 knows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Notice { $($name),* }

        impl Notice {
            /// Every notice, by ascending code.
            pub const ALL: &'static [Notice] = &[$(Notice::$name),*];

            pub fn code(self) -> u32 {
                match self { $(Notice::$name => $code),* }
            }

            pub fn level(self) -> Level {
                match self { $(Notice::$name => Level::$level),* }
            }

            /// The exact text on the wire.
            pub fn message(self) -> &'static str {
                match self { $(Notice::$name => $message),* }
            }
        }
    };
}

notices! {
    RecommendationsAvailable = 111_000, Info, "Recommendations Are Available";
    ShortTermAvailable = 111_101, Info, "Short Term Recommendations Available";
    MediumTermAvailable = 111_102, Info, "Medium Term Recommendations Available";
    LongTermAvailable = 111_103, Info, "Long Term Recommendations Available";
    CostAvailable = 112_101, Info, "Cost Recommendations Available";
    PerformanceAvailable = 112_102, Info, "Performance Recommendations Available";
    ModelAvailable = 112_103, Info, "Model Recommendations Available";
    RuntimesAvailable = 112_104, Info, "Runtimes Recommendations Available";
    NotEnoughData = 120_001, Info,
        "There is not enough data available to generate a recommendation.";
    AcceleratorAvailable = 128_001, Info, "Accelerator Recommendations are available";
    PodsZero = 221_001, Error, "Number of pods cannot be zero";
    PodsNegative = 221_002, Error, "Number of pods cannot be negative";
    HoursZero = 221_003, Error, "Duration hours cannot be zero";
    HoursNegative = 221_004, Error, "Duration hours cannot be negative";
    CpuAmountMissing = 223_001, Error, "Amount field is missing in the CPU Section";
    CpuAmountInvalid = 223_002, Error, "Invalid Amount in CPU Section";
    CpuFormatMissing = 223_003, Error, "Format field is missing in CPU Section";
    CpuFormatInvalid = 223_004, Error, "Invalid Format in CPU Section";
    MemoryAmountMissing = 224_001, Error, "Amount field is missing in the Memory Section";
    MemoryAmountInvalid = 224_002, Error, "Invalid Amount in Memory Section";
    MemoryFormatMissing = 224_003, Error, "Format field is missing in Memory Section";
    MemoryFormatInvalid = 224_004, Error, "Invalid Format in Memory Section";
    CpuIdle = 323_001, Notice,
        "CPU Usage is less than a millicore, No CPU Recommendations can be generated";
    CpuZero = 323_002, Notice, "CPU usage is zero, No CPU Recommendations can be generated";
    CpuNotAvailable = 323_003, Notice,
        "CPU metrics are not available, No CPU Recommendations can be generated";
    CpuRequestOptimised = 323_004, Notice,
        "Workload is optimised wrt CPU REQUESTS, no changes needed";
    CpuLimitOptimised = 323_005, Notice,
        "Workload is optimised wrt CPU LIMITS, no changes needed";
    MemoryZero = 324_001, Notice,
        "Memory Usage is zero, No Memory Recommendations can be generated";
    MemoryNotAvailable = 324_002, Notice,
        "Memory metrics are not available, No Memory Recommendations can be generated";
    MemoryRequestOptimised = 324_003, Notice,
        "Workload is optimised wrt MEMORY REQUESTS, no changes needed";
    MemoryLimitOptimised = 324_004, Notice,
        "Workload is optimised wrt MEMORY LIMITS, no changes needed";
    AcceleratorNotSupported = 328_001, Notice, "Accelerator is not supported by kruize";
    CpuLimitNotSet = 423_001, Warning, "CPU Limit Not Set";
    CpuRequestNotSet = 523_001, Critical, "CPU Request Not Set";
    MemoryRequestNotSet = 524_001, Critical, "Memory Request Not Set";
    MemoryLimitNotSet = 524_002, Critical, "Memory Limit Not Set";
}

/// A set of notices. It is one word, because six of them are made for every container.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Notices(u64);

impl Notices {
    pub fn add(&mut self, notice: Notice) {
        self.0 |= 1 << notice as u32;
    }

    pub fn contains(self, notice: Notice) -> bool {
        self.0 & (1 << notice as u32) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The notices by ascending code.
    pub fn iter(self) -> impl Iterator<Item = Notice> {
        Notice::ALL.iter().copied().filter(move |notice| self.contains(*notice))
    }
}

impl FromIterator<Notice> for Notices {
    fn from_iter<I: IntoIterator<Item = Notice>>(notices: I) -> Self {
        let mut set = Notices::default();
        notices.into_iter().for_each(|notice| set.add(notice));
        set
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_fits_into_its_word_and_lists_by_code() {
        assert!(Notice::ALL.len() <= 64);
        assert!(Notice::ALL.windows(2).all(|two| two[0].code() < two[1].code()));
        let all: Notices = Notice::ALL.iter().rev().copied().collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), Notice::ALL);
        assert_eq!(all.len(), Notice::ALL.len());
        assert!(Notices::default().is_empty() && !all.is_empty());
    }
}
