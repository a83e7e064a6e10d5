//! Tests that measure time or memory of the agent. They form a binary of their own, because cargo runs one test binary at
//! a time: tests of other binaries do not compete with them.

mod clients;
mod sampling_times;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
