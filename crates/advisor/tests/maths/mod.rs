//! The formulas against recorded data, and properties that hold for any data.

mod boxplots;
mod containers;
mod gpu;
mod namespaces;
mod notices;
mod pairs;
mod properties;
pub mod table;
mod thresholds;
