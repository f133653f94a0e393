//! The systems that the operator talks to.

pub mod kubernetes;
