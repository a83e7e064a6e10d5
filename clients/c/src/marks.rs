//! Marks and phases.

use std::ffi::c_char;

use pegel_client_datagrams::marks::{PhaseNumber, begin_phase, end_phase, lost_marks, mark};

use crate::text;

/// # Safety
///
/// The text must be null or end with a zero byte.
// SAFETY: upheld by the C caller, see above; no other library defines this name.
#[unsafe(no_mangle)]
// SAFETY: as above.
pub(crate) unsafe extern "C" fn pegel_mark(words: *const c_char) {
    // SAFETY: upheld by the C caller, see above.
    if let Ok(words) = unsafe { text(words) } {
        mark(words);
    }
}

/// # Safety
///
/// The name must be null or end with a zero byte.
// SAFETY: upheld by the C caller, see above; no other library defines this name.
#[unsafe(no_mangle)]
// SAFETY: as above.
pub(crate) unsafe extern "C" fn pegel_phase_begin(name: *const c_char) -> u64 {
    // SAFETY: upheld by the C caller, see above.
    unsafe { text(name) }.map_or(0, |name| begin_phase(name).0)
}

/// # Safety
///
/// The name must be null or end with a zero byte.
// SAFETY: upheld by the C caller, see above; no other library defines this name.
#[unsafe(no_mangle)]
// SAFETY: as above.
pub(crate) unsafe extern "C" fn pegel_phase_end(name: *const c_char, number: u64) {
    // SAFETY: upheld by the C caller, see above.
    if let Ok(name) = unsafe { text(name) }
        && number > 0
    {
        end_phase(name, PhaseNumber(number));
    }
}

// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pegel_marks_lost() -> u64 {
    lost_marks()
}
