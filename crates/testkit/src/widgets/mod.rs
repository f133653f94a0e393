//! The example of a domain: widgets that are built in a workshop, an outside system. They may depend
//! on other widgets, count against their organisation's quota, have unique names, and fail on
//! demand. For tests only.
//!
//! It has the modules of every domain, one file each: [`model`], [`decide`], [`store`], [`ports`],
//! [`commands`], [`work`], [`api`] and [`domain`].

pub mod api;
pub mod commands;
pub mod decide;
pub mod domain;
pub mod model;
pub mod ports;
pub mod store;
pub mod work;

pub use domain::WidgetDomain;
pub use model::{Request, Spec};
pub use ports::{Directory, Order, Workshop};
pub use work::WidgetWorker;
