//! A small solver with metrics: Jacobi's method for a tridiagonal system.
//!
//! `cargo run -p pegel-client --example solver -- 200`, and beside it `pegel values --match
//! 'solver_*'`.
#![allow(clippy::print_stdout)] // A program may print.

use std::process::ExitCode;

fn main() -> ExitCode {
    let steps: u32 = match std::env::args().nth(1).map(|arg| arg.parse()) {
        None => 200,
        Some(Ok(steps)) => steps,
        Some(Err(_)) => {
            println!("usage: solver [NUMBER-OF-STEPS]");
            return ExitCode::from(2);
        }
    };
    let iterations = pegel::counter("solver_iterations_total")
        .help("Iterations of the solver.")
        .label("phase", "solve")
        .build();
    let busy = pegel::float_counter("solver_busy_seconds_total").build();
    let residual = pegel::gauge("solver_residual")
        .help("What is left of the error.")
        .aggregate(pegel::Aggregation::Max)
        .rank()
        .build();
    let step = pegel::timer("solver_step_seconds").build();
    let changes = pegel::histogram("solver_change").build();
    let history = pegel::point("solver_residual_history").build();

    pegel::mark("solver starts");
    let solve = pegel::phase("solve");
    let mut x = vec![0.0_f64; 1000];
    for _ in 0..steps {
        let running = step.start();
        let started = std::time::Instant::now();
        let (next, change) = sweep(&x);
        x = next;
        drop(running);
        busy.add(started.elapsed().as_secs_f64());
        iterations.add(1);
        residual.set(change);
        changes.record(change);
        history.add(change);
    }
    drop(solve);
    println!("{steps} steps, published: {}", pegel::is_published());
    ExitCode::SUCCESS
}

/// Does one sweep over `2 x[i] - x[i-1] - x[i+1] = 1`, and returns the largest change.
fn sweep(x: &[f64]) -> (Vec<f64>, f64) {
    let at = |index: Option<usize>| index.and_then(|index| x.get(index)).copied().unwrap_or(0.0);
    let next: Vec<f64> = (0..x.len())
        .map(|i| (1.0 + at(i.checked_sub(1)) + at(Some(i + 1))) / 2.0)
        .collect();
    let change = next
        .iter()
        .zip(x)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    (next, change)
}
