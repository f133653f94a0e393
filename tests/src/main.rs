//! The server and its client with the widget domain: what the end-to-end tests run.

use std::process::ExitCode;

use testkit::widgets::WidgetDomain;

fn main() -> ExitCode {
    let workshop = std::env::var_os("WIDGET_WORKSHOP").map_or_else(std::env::temp_dir, Into::into);
    mainstay::run(vec![Box::new(WidgetDomain { workshop })])
}
