//! What environments are made of: templates as people write them, and the objects that come of them.

mod label;

pub mod digest;
pub mod drift;
pub mod environment;
pub mod expression;
pub mod fields;
pub mod input;
pub mod outputs;
pub mod parameter;
pub mod period;
pub mod plan;
pub mod problem;
pub mod refs;
pub mod resource;
pub mod template;
pub mod wire;
pub mod yaml;
