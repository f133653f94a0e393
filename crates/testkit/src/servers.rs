//! Where the test servers are: `cargo xtask test` says so in `MAINSTAY_TEST_*` variables.

/// The address of a test server. Without it the test is skipped, and says so; under
/// `cargo xtask test` a missing server is a failure.
pub fn address(server: &str) -> Option<String> {
    let variable = format!("MAINSTAY_TEST_{}", server.to_uppercase());
    match std::env::var(&variable) {
        Ok(address) => Some(address),
        Err(_) if std::env::var("MAINSTAY_TEST_SERVERS").as_deref() == Ok("required") => {
            panic!("{variable} is not set, but the servers are required")
        }
        Err(_) => {
            eprintln!("skipped: {variable} is not set; `cargo xtask test` starts the servers");
            None
        }
    }
}
