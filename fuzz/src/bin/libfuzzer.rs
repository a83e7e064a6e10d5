//! Runs the target named by `PEGEL_FUZZ_TARGET` under libFuzzer.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pegel_fuzz::{Counting, Target, find};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("PEGEL_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("PEGEL_FUZZ_TARGET={name:?} is no target"))
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
