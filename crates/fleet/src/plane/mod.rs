//! Data planes: where instances really run.

pub mod local;
