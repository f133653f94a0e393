//! The version. The revision and the build time come from the environment of the build.

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub const REVISION: &str = match option_env!("MAINSTAY_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

pub const BUILD_TIME: &str = match option_env!("MAINSTAY_BUILD_TIME") {
    Some(time) => time,
    None => "unknown",
};
