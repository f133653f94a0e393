//! The binary of the end-to-end tests: `mainstay` with the testkit's domain.

fn main() -> std::process::ExitCode {
    mainstay::run(Vec::new())
}
