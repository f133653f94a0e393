//! The binary, with the domains that `server.rs` adds; tests build others with more.

fn main() -> std::process::ExitCode {
    mainstay::run(Vec::new())
}
