//! For tests only: a store in memory, the widget domain, the simulator, the test servers, and an
//! account management service, since there is none to run.

pub mod ams;
mod bug;
pub mod chaos;
mod claims;
pub mod memory;
mod purge;
pub mod replay;
pub mod servers;
pub mod sim;
pub mod stores;
pub mod widgets;

pub use memory::Memory;
#[cfg(feature = "chromium")]
pub use servers::chromium::{self, chromium};
pub use servers::consul::{self, consul};
#[cfg(feature = "kafka")]
pub use servers::kafka::{self, kafka};
pub use servers::keycloak::{self, keycloak};
#[cfg(feature = "kubernetes")]
pub use servers::kubernetes::{self, kubernetes};
pub use servers::postgres::{self, postgres};
pub use servers::prometheus::{self, prometheus};
#[cfg(feature = "rabbitmq")]
pub use servers::rabbitmq::{self, rabbitmq};
#[cfg(feature = "route53")]
pub use servers::route53::{self, route53};
pub use servers::shared;
pub use servers::terraform::{self, terraform};
pub use servers::vault::{self, vault};
