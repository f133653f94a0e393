//! The binary. Domains are added to this list.

fn main() -> std::process::ExitCode {
    mainstay::run(Vec::new())
}
