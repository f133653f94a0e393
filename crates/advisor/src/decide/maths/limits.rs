//! Requests and limits: what is configured, what is printed, and how much it changes.

use super::buckets::Scope;
use super::columns::Columns;
use crate::model::measure::{Aggregate, Metric};
use crate::model::notice::{Notice, Notices};
use crate::model::recommendation::{Formats, Resources, Sizing};

/// What is configured at one time, and notices about what is not.
pub(super) fn current(
    scope: Scope,
    columns: &Columns<'_>,
    formats: &Formats,
    at_ms: i64,
    notices: &mut Notices,
) -> Sizing {
    let aggregate = match scope {
        Scope::Container => Aggregate::Avg,
        Scope::Namespace => Aggregate::Sum,
    };
    let mut read = |metric, not_set, format: &Option<_>, section: &Section| {
        let amount = columns.get(metric, aggregate).at(at_ms);
        if amount.is_none() {
            notices.add(not_set);
        }
        match section.check(amount, format.as_deref()) {
            Ok(amount) => Some(amount),
            Err(notice) => {
                notices.add(notice);
                None
            }
        }
    };
    let (cpu, memory) = (&formats.cpu, &formats.memory);
    Sizing {
        requests: Resources {
            cpu: read(Metric::CpuRequest, Notice::CpuRequestNotSet, cpu, &CPU),
            memory: read(Metric::MemoryRequest, Notice::MemoryRequestNotSet, memory, &MEMORY),
        },
        limits: Resources {
            cpu: read(Metric::CpuLimit, Notice::CpuLimitNotSet, cpu, &CPU),
            memory: read(Metric::MemoryLimit, Notice::MemoryLimitNotSet, memory, &MEMORY),
        },
    }
}

/// What can be wrong with a configured amount of one resource.
struct Section {
    amount_missing: Notice,
    amount_invalid: Notice,
    format_missing: Notice,
    format_invalid: Notice,
}

const CPU: Section = Section {
    amount_missing: Notice::CpuAmountMissing,
    amount_invalid: Notice::CpuAmountInvalid,
    format_missing: Notice::CpuFormatMissing,
    format_invalid: Notice::CpuFormatInvalid,
};

const MEMORY: Section = Section {
    amount_missing: Notice::MemoryAmountMissing,
    amount_invalid: Notice::MemoryAmountInvalid,
    format_missing: Notice::MemoryFormatMissing,
    format_invalid: Notice::MemoryFormatInvalid,
};

impl Section {
    fn check(&self, amount: Option<f64>, format: Option<&str>) -> Result<f64, Notice> {
        let amount = amount.ok_or(self.amount_missing)?;
        let format = format.ok_or(self.format_missing)?;
        if amount <= 0.0 {
            return Err(self.amount_invalid);
        }
        if format.trim().is_empty() {
            return Err(self.format_invalid);
        }
        Ok(amount)
    }
}

/// The notices of amounts that are configured well enough already.
pub(super) struct Optimised {
    pub request: Notice,
    pub limit: Notice,
}

pub(super) const CPU_OPTIMISED: Optimised =
    Optimised { request: Notice::CpuRequestOptimised, limit: Notice::CpuLimitOptimised };

pub(super) const MEMORY_OPTIMISED: Optimised =
    Optimised { request: Notice::MemoryRequestOptimised, limit: Notice::MemoryLimitOptimised };

/// What is printed for one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Compared {
    /// The request and the limit: Kruize keeps one value for both.
    pub amount: Option<f64>,
    pub request_change: Option<f64>,
    pub limit_change: Option<f64>,
}

/// Compares a recommended amount with the configured request and limit.
///
/// Within the threshold the configured value is adopted and its change is 0. As request and limit
/// are one value, adopting one changes what is printed for the other, whose change stays as it
/// was; if both are within the threshold, the limit wins. Both compare with the original amount.
pub(super) fn compare(
    recommended: Option<f64>,
    request: Option<f64>,
    limit: Option<f64>,
    threshold_percent: f64,
    optimised: &Optimised,
    notices: &mut Notices,
) -> Compared {
    let Some(recommended) = recommended else { return Compared::default() };
    let mut amount = recommended;
    let mut change = |current: Option<f64>, notice| {
        if let Some(current) = current
            && (recommended - current).abs() / current * 100.0 <= threshold_percent
        {
            amount = current;
            notices.add(notice);
            return 0.0;
        }
        recommended - current.unwrap_or(0.0)
    };
    let request_change = change(request, optimised.request);
    let limit_change = change(limit, optimised.limit);
    Compared {
        amount: Some(amount),
        request_change: Some(request_change),
        limit_change: Some(limit_change),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(
        recommended: f64,
        request: Option<f64>,
        limit: Option<f64>,
    ) -> (f64, f64, f64, Vec<u32>) {
        let mut notices = Notices::default();
        let some = Some(recommended);
        let result = compare(some, request, limit, 0.1, &CPU_OPTIMISED, &mut notices);
        let changes = (result.request_change.unwrap(), result.limit_change.unwrap());
        let codes = notices.iter().map(Notice::code).collect();
        (result.amount.unwrap(), changes.0, changes.1, codes)
    }

    #[test]
    fn adopting_one_side_changes_what_is_printed_for_both() {
        // Neither.
        assert_eq!(compared(2.0, Some(1.0), Some(4.0)), (2.0, 1.0, -2.0, vec![]));
        assert_eq!(compared(2.0, None, None), (2.0, 2.0, 2.0, vec![]));
        // The request.
        let adopted = (0.5004, 0.0, 0.5 - 1.0, vec![323_004]);
        assert_eq!(compared(0.5, Some(0.5004), Some(1.0)), adopted);
        // The limit: the change of the request stays.
        let adopted = (0.4997, 0.25, 0.0, vec![323_005]);
        assert_eq!(compared(0.5, Some(0.25), Some(0.4997)), adopted);
        // Both: the limit wins, and is compared with the original amount.
        let adopted = (1.0009, 0.0, 0.0, vec![323_004, 323_005]);
        assert_eq!(compared(1.0, Some(0.9992), Some(1.0009)), adopted);
        // The adopted request would be too far from the limit; the original amount is not.
        let adopted = (1000.9, 0.0, 0.0, vec![323_004, 323_005]);
        assert_eq!(compared(1000.0, Some(999.1), Some(1000.9)), adopted);
    }

    #[test]
    fn the_threshold_is_a_tenth_of_a_percent_and_includes_its_end() {
        assert_eq!(compared(1001.0, Some(1000.0), None).3, [323_004]);
        assert_eq!(compared(999.0, Some(1000.0), None).3, [323_004]);
        assert!(compared(1001.001, Some(1000.0), None).3.is_empty());
        assert!(compared(998.999, Some(1000.0), None).3.is_empty());
        // Ten percent is far.
        assert!(compared(1.1, Some(1.0), None).3.is_empty());
    }

    #[test]
    fn without_an_amount_nothing_changes() {
        let mut notices = Notices::default();
        let one = Some(1.0);
        let result = compare(None, one, one, 0.1, &MEMORY_OPTIMISED, &mut notices);
        assert_eq!(result, Compared::default());
        assert!(notices.is_empty());
    }

    #[test]
    fn every_defect_of_a_section_has_its_notice() {
        let cores = Some("cores");
        let table = [
            (CPU.check(Some(0.5), cores), Ok(0.5)),
            (CPU.check(None, cores), Err(Notice::CpuAmountMissing)),
            (CPU.check(Some(0.0), cores), Err(Notice::CpuAmountInvalid)),
            (CPU.check(Some(-1.0), cores), Err(Notice::CpuAmountInvalid)),
            (CPU.check(Some(0.5), None), Err(Notice::CpuFormatMissing)),
            (CPU.check(Some(0.5), Some(" ")), Err(Notice::CpuFormatInvalid)),
            (MEMORY.check(None, None), Err(Notice::MemoryAmountMissing)),
            (MEMORY.check(Some(0.0), cores), Err(Notice::MemoryAmountInvalid)),
            (MEMORY.check(Some(1.0), None), Err(Notice::MemoryFormatMissing)),
            (MEMORY.check(Some(1.0), Some("")), Err(Notice::MemoryFormatInvalid)),
        ];
        for (i, (checked, expected)) in table.into_iter().enumerate() {
            assert_eq!(checked, expected, "line {i}");
        }
    }
}
