//! The benchmark suite: each figure with its baseline from the same run. `cargo xtask bench
//! kernel` builds and runs it; nothing here is a test, and no test depends on a time.

mod advisor;
mod advisor_large;
mod advisor_maths;
mod advisor_played;
mod advisor_real;
mod bus;
mod bus_backlog;
mod bus_bare;
mod bus_commands;
mod bus_events;
mod bus_latency;
mod bus_pump;
mod bus_readers;
mod bus_throughput;
mod environments;
mod figures;
mod fleet;
mod fleet_data;
mod load;
mod server;
mod sse;
mod streams;
mod streams_world;
mod transitions;
mod wakeup;

use figures::Figures;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.iter().any(|word| word == "--json");
    let names: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let mut figures = Figures::new(json);
    match names.first() {
        Some(&"kernel") => kernel(&mut figures, names.get(1).copied().unwrap_or("")),
        Some(&"fleet") => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(fleet::run(&mut figures, names.get(1).copied().unwrap_or("")))?;
            figures.print();
            Ok(())
        }
        Some(&"streams") => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(streams::run(&mut figures, names.get(1).copied().unwrap_or("")))?;
            figures.print();
            Ok(())
        }
        Some(&"bus") => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(bus::run(&mut figures, names.get(1).copied().unwrap_or("")))?;
            figures.print();
            Ok(())
        }
        Some(&"advisor") => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(advisor::run(&mut figures, names.get(1).copied().unwrap_or("")))?;
            figures.print();
            Ok(())
        }
        Some(&"environments") => {
            environments::run(&mut figures)?;
            figures.print();
            Ok(())
        }
        // The bare server that a figure is compared with.
        Some(&"echo") if names.len() == 3 => {
            let port = names[2].parse()?;
            tokio::runtime::Runtime::new()?.block_on(server::echo(names[1].into(), port))
        }
        _ => anyhow::bail!(
            "usage: benches kernel|fleet|streams|bus|advisor|environments [PART] [--json]"
        ),
    }
}

fn kernel(figures: &mut Figures, part: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let wanted = |name: &str| part.is_empty() || part == name;
    if wanted("transitions") {
        runtime.block_on(transitions::sqlite(figures))?;
        runtime.block_on(transitions::postgres(figures))?;
    }
    if wanted("wakeup") {
        runtime.block_on(wakeup::sqlite(figures))?;
        runtime.block_on(wakeup::postgres(figures))?;
    }
    if wanted("empty") {
        runtime.block_on(server::empty(figures))?;
    }
    if wanted("rest") {
        runtime.block_on(server::rest(figures))?;
    }
    if wanted("sse") {
        runtime.block_on(sse::run(figures))?;
    }
    if wanted("get") {
        runtime.block_on(server::get_one(figures))?;
    }
    figures.print();
    Ok(())
}
