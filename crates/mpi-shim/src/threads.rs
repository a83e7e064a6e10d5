//! Whether the program's threads call MPI at the same time. Mostly they may not, which makes counting cheap.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::arguments::{Arguments, Width};
use crate::byte_rule::{ByteRule, CallScratch};
use crate::resolve::RealFunction;

const MULTIPLE: i32 = 3;

const UNKNOWN: u8 = 0;
/// The program was initialised at a level at which it keeps its threads apart.
const SERIALIZED: u8 = 1;
/// It may have several threads in MPI; that is final.
const CONCURRENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

#[inline]
pub(crate) fn is_serialized() -> bool {
    STATE.load(Relaxed) == SERIALIZED
}

/// `MPI_Init` and `MPI_Init_thread`. The library is asked: its settings may raise the level.
#[derive(Debug)]
pub(crate) struct Initialise;

impl ByteRule for Initialise {
    fn after<W: Width>(_: &Arguments<'_>, _: &CallScratch) -> u64 {
        static REAL: RealFunction = RealFunction::new("PMPI_Query_thread\0");
        let mut level = MULTIPLE;
        // SAFETY: so the standard declares it.
        unsafe {
            let real: extern "C-unwind" fn(*mut i32) -> i32 = std::mem::transmute(REAL.get());
            real(&raw mut level);
        }
        if level < MULTIPLE {
            let _ = STATE.compare_exchange(UNKNOWN, SERIALIZED, Relaxed, Relaxed);
        }
        0
    }
}

/// `MPI_Session_init`: each session has a level of its own, so that none can be relied upon.
#[derive(Debug)]
pub(crate) struct SessionInit;

impl ByteRule for SessionInit {
    fn before(_: &mut [usize], _: &mut CallScratch) {
        STATE.store(CONCURRENT, Relaxed);
    }

    fn after<W: Width>(_: &Arguments<'_>, _: &CallScratch) -> u64 {
        0
    }
}
