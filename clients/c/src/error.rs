//! The reason why the last series of a thread was not created, for `pegel_error`.

use std::cell::UnsafeCell;
use std::ffi::c_char;

use pegel_client_datagrams::statsd_output::StatsdConfigError;
use pegel_lane::CreateError;

/// The error in the arguments of a C program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadText {
    Utf8,
    /// A label without an equals sign that is neither `pid` nor `rank`.
    Label,
    Aggregation,
    Refused(CreateError),
    Statsd(StatsdConfigError),
}

impl BadText {
    fn text(self) -> &'static str {
        match self {
            BadText::Utf8 => "name, help and labels must be UTF-8",
            BadText::Label => "labels must be key=value,key=value; only pid and rank have no value",
            BadText::Aggregation => {
                "the aggregation must be PEGEL_LAST, PEGEL_MIN, PEGEL_MAX or PEGEL_SUM"
            }
            BadText::Refused(error) => error.text(),
            BadText::Statsd(problem) => problem.text(),
        }
    }
}

/// Longer than any of the texts; the last byte stays zero.
const BYTES: usize = 128;

thread_local! {
    static LAST: UnsafeCell<[u8; BYTES]> = const { UnsafeCell::new([0; BYTES]) };
}

pub(crate) fn remember(error: Option<BadText>) {
    let text = error.map_or("", BadText::text).as_bytes();
    // Errors are ignored: a thread that is being torn down has no thread-local storage any more.
    let _ = LAST.try_with(|last| {
        let mut kept = [0; BYTES];
        for (to, from) in kept.iter_mut().take(BYTES - 1).zip(text) {
            *to = *from;
        }
        // SAFETY: only this thread uses it, and keeps no reference into it.
        unsafe { *last.get() = kept };
    });
}

pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.get().cast_const().cast())
        .unwrap_or(c"".as_ptr())
}
