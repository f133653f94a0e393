//! The worked example of a domain: widgets that are built in an outside workshop. They may depend
//! on other widgets, count against their organisation's quota, have unique names, and fail on
//! demand. For tests only.
//!
//! The rooms are those of every domain: [`model`] (types), [`decide`] (pure), [`work`] (observe
//! and execute), [`api`] (routes), [`workshop`] (the outside system).

pub mod decide;
pub mod model;
pub mod work;
pub mod workshop;

pub use model::{Request, Spec};
pub use work::Widgets;
pub use workshop::{Directory, Workshop};
