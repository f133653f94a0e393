//! The local data plane.
