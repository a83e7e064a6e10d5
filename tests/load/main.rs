//! Tests that measure time or memory of the agent. They form a binary of their own, because cargo
//! runs one test binary at a time, and run one after the other: they would measure each other.

mod clients;
mod cpu_rates;
mod jobs;
mod sampling_times;

use parking_lot::{Mutex, MutexGuard};
use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));

static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test of this binary runs.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}
