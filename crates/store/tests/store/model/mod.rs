//! Random operations on the store and on a naive map, by seed: both must always agree.
//!
//! `PEGEL_SEED=n cargo test -p pegel-store --test store model` repeats one run.

mod checks;
mod collector;
mod expected_current_values;
mod model_run;
mod naive_store;

use std::sync::atomic::{AtomicU64, Ordering};

use model_run::ModelRun;

const SEEDS: u64 = 200;
const OPERATIONS: usize = 100;

/// Prints the operations that led to a failure.
struct PrintOnPanic(ModelRun);

impl Drop for PrintOnPanic {
    #[allow(clippy::print_stderr)] // A failing test shows what it printed; a passing one does not.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let story = &self.0.operation_log;
            let last = &story[story.len().saturating_sub(30).max(1)..];
            eprintln!("{}\n{}", story[0], last.join("\n"));
            eprintln!("to repeat: PEGEL_SEED=n with the seed above");
        }
    }
}

fn run(seed: u64) {
    let mut told = PrintOnPanic(ModelRun::new(seed));
    for _ in 0..OPERATIONS {
        told.0.step();
    }
    told.0.finish();
}

#[test]
fn the_store_equals_a_naive_map() {
    if let Ok(seed) = std::env::var("PEGEL_SEED") {
        return run(seed.parse().expect("PEGEL_SEED is a whole number"));
    }
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        seed if seed < SEEDS => run(seed),
                        _ => break,
                    }
                }
            });
        }
    });
}
