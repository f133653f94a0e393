//! For tests only: a store in memory, the widget domain, the simulator, connections to the test
//! servers.

pub mod memory;

pub use memory::Memory;
