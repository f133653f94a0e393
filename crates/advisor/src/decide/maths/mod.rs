//! The mathematics of a recommendation: from columns of measurements to numbers, equal to
//! Kruize 0.10 to the last digit.
//!
//! `columns` are what was measured, `buckets` one row per interval, `terms` the windows that have
//! enough data. `cpu`, `memory` and `gpu` make an amount from a window, `namespace` is the variant
//! for whole namespaces, `limits` compares amounts with what is configured, `plots` draws boxes.
//! `recommend` puts them together.

pub mod buckets;
pub mod columns;
mod cpu;
pub mod gpu;
mod limits;
mod memory;
mod namespace;
mod percentile;
mod plots;
pub mod recommend;
mod terms;
