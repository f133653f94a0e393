//! Pure decisions of the advisor.

pub mod job;
pub mod material;
pub mod maths;
pub mod notification;
pub mod split;
pub mod uploaded;
