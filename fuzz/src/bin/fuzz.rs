//! `fuzz [--seconds N] [--seed N] [--seeds] [TARGET…]`: see `cargo xtask fuzz`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Prints a report.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pegel_fuzz::{Counting, Options, TARGETS, Target, find, fuzz, write_seeds};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const USAGE: &str = "\
fuzz [--seconds N] [--seed N] [TARGET…]   replay the corpora, then mutate their inputs at random
fuzz --seeds                              write the seed inputs of every corpus
fuzz --list                               list the targets";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("fuzz: {message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<bool, String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut options = Options {
        time: Duration::ZERO,
        seed: 1,
        corpus: home.join("corpus"),
        crashes: home.join("../target/fuzz-crashes"),
    };
    let mut targets: Vec<&'static Target> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let text = args.next().ok_or(format!("{arg} requires a number"))?;
            text.parse::<u64>()
                .map_err(|error| format!("{arg} {text}: {error}"))
        };
        match arg.as_str() {
            "--seconds" => options.time = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--seeds" => {
                let written = write_seeds(&options.corpus).map_err(|error| error.to_string())?;
                println!("{written} seeds written to {}", options.corpus.display());
                return Ok(true);
            }
            "--list" => {
                TARGETS
                    .iter()
                    .for_each(|target| println!("{}", target.name));
                return Ok(true);
            }
            name => targets.push(
                find(name).ok_or(format!("unknown target {name:?}; --list shows the targets"))?,
            ),
        }
    }
    if targets.is_empty() {
        targets = TARGETS.iter().collect();
    }
    report(&targets, &options)
}

fn report(targets: &[&'static Target], options: &Options) -> Result<bool, String> {
    println!(
        "seed {}, {} targets, {:?} in all",
        options.seed,
        targets.len(),
        options.time
    );
    println!(
        "{:<16} {:>7} {:>12} {:>10}",
        "target", "corpus", "executions", "per second"
    );
    let is_whole = fuzz(targets, options, |outcome| {
        let rate = outcome.executions as f64 / outcome.time.as_secs_f64().max(1e-9);
        println!(
            "{:<16} {:>7} {:>12} {:>10.0}",
            outcome.target, outcome.replayed, outcome.executions, rate
        );
        for finding in &outcome.broken {
            println!("BROKEN {}: {:?}", finding.input.display(), finding.broken);
        }
    });
    is_whole.map_err(|error| error.to_string())
}
