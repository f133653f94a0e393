//! Runs the simulator over many seeds, on every core. A failing seed prints itself.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use testkit::sim;

const USAGE: &str = "usage: sim [--seeds N] [--from SEED] [--seed SEED]";

fn main() -> ExitCode {
    let (mut seeds, mut from, mut only) = (1000, 0, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|number| number.parse::<u64>().ok());
        match (word.as_str(), number) {
            ("--seeds", Some(number)) => seeds = number,
            ("--from", Some(number)) => from = number,
            ("--seed", Some(number)) => only = Some(number),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let (from, seeds) = only.map_or((from, seeds), |seed| (seed, 1));
    many(from, seeds)
}

fn many(from: u64, seeds: u64) -> ExitCode {
    let (next, failed, objects, crashes) =
        (AtomicU64::new(from), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = std::time::Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    match sim::run(seed, None) {
                        Ok(report) => {
                            objects.fetch_add(report.objects, Ordering::Relaxed);
                            crashes.fetch_add(report.crashes, Ordering::Relaxed);
                        }
                        Err(broken) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!(
                                "seed {seed}: {}\n  replay: cargo xtask sim --seed {seed}",
                                broken.0
                            );
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!(
        "{} seeds, {} objects, {} crashes, {:.1} s",
        seeds,
        objects.into_inner(),
        crashes.into_inner(),
        begun.elapsed().as_secs_f64()
    );
    println!("sim: {} passed, {failed} failed", seeds - failed as u64);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
