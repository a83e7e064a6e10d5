//! Whether the program's threads call MPI at the same time. Mostly they may not, which makes counting cheap.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::arguments::{Arguments, Width};
use crate::resolve::Real;
use crate::rule::{Own, Rule};

const MULTIPLE: i32 = 3;

const UNKNOWN: u8 = 0;
/// The program was initialised at a level at which it keeps its threads apart.
const APART: u8 = 1;
/// It may have several threads in MPI; that is final.
const TOGETHER: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

#[inline]
pub(crate) fn are_apart() -> bool {
    STATE.load(Relaxed) == APART
}

/// `MPI_Init` and `MPI_Init_thread`. The library is asked: its settings may raise the level.
#[derive(Debug)]
pub(crate) struct Initialise;

impl Rule for Initialise {
    fn after<W: Width>(_: &Arguments<'_>, _: &Own) -> u64 {
        static REAL: Real = Real::new("PMPI_Query_thread\0");
        let mut level = MULTIPLE;
        // SAFETY: so the standard declares it.
        unsafe {
            let real: extern "C-unwind" fn(*mut i32) -> i32 = std::mem::transmute(REAL.get());
            real(&raw mut level);
        }
        if level < MULTIPLE {
            let _ = STATE.compare_exchange(UNKNOWN, APART, Relaxed, Relaxed);
        }
        0
    }
}

/// `MPI_Session_init`: each session has a level of its own, so that none can be relied upon.
#[derive(Debug)]
pub(crate) struct Session;

impl Rule for Session {
    fn before(_: &mut [usize], _: &mut Own) {
        STATE.store(TOGETHER, Relaxed);
    }

    fn after<W: Width>(_: &Arguments<'_>, _: &Own) -> u64 {
        0
    }
}
