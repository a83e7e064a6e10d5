//! Detects whether several threads may call MPI at the same time. Most programs exclude that, and
//! counting then needs no atomic additions.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::arguments::{Arguments, Width};
use crate::byte_rule::{ByteRule, CallScratch};
use crate::resolve::RealFunction;

const MULTIPLE: i32 = 3;

const UNKNOWN: u8 = 0;
/// The thread level is below MPI_THREAD_MULTIPLE: calls do not overlap.
const SERIALIZED: u8 = 1;
/// Several threads may be in MPI; this state is final.
const CONCURRENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

#[inline]
pub(crate) fn is_serialized() -> bool {
    STATE.load(Relaxed) == SERIALIZED
}

/// `MPI_Init` and `MPI_Init_thread`. The level is queried, because settings of the library may
/// raise it.
#[derive(Debug)]
pub(crate) struct Initialise;

impl ByteRule for Initialise {
    fn after<W: Width>(_: &Arguments<'_>, _: &CallScratch) -> u64 {
        static REAL: RealFunction = RealFunction::new("PMPI_Query_thread\0");
        let mut level = MULTIPLE;
        // SAFETY: the signature is that of the MPI standard.
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

/// `MPI_Session_init`: each session has its own level, so that calls must be assumed to overlap.
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
