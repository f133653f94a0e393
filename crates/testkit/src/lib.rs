//! For tests only: a store in memory, the widget domain, the simulator, the test servers.

pub mod chaos;
pub mod memory;
pub mod servers;
pub mod sim;
pub mod stores;
pub mod widgets;

pub use memory::Memory;
pub use servers::consul::{self, consul};
#[cfg(feature = "kubernetes")]
pub use servers::kubernetes::{self, kubernetes};
pub use servers::postgres::{self, postgres};
pub use servers::terraform::{self, terraform};
pub use servers::vault::{self, vault};
