//! Sending values to other statsd servers.

use std::ffi::{c_char, c_int};

use pegel_client_datagrams::statsd_output::{StatsdConfig, counts, flush, start, switch};

use crate::error::{BadText, remember};
use crate::text;

/// # Safety
///
/// The address must be null or end with a zero byte.
// SAFETY: upheld by the C caller, see above; no other library defines this name.
#[unsafe(no_mangle)]
// SAFETY: as above.
pub(crate) unsafe extern "C" fn pegel_statsd_start(address: *const c_char) -> c_int {
    // SAFETY: upheld by the C caller, see above.
    let address = unsafe { text(address) };
    let started = address.and_then(|address| {
        let config = StatsdConfig::new(address);
        config.and_then(start).map_err(BadText::Statsd)
    });
    remember(started.err());
    if started.is_ok() { 0 } else { -1 }
}

/// # Safety
///
/// The pattern must be null or end with a zero byte.
// SAFETY: upheld by the C caller, see above; no other library defines this name.
#[unsafe(no_mangle)]
// SAFETY: as above.
pub(crate) unsafe extern "C" fn pegel_statsd_switch(pattern: *const c_char, is_on: c_int) {
    // SAFETY: upheld by the C caller, see above.
    if let Ok(pattern) = unsafe { text(pattern) } {
        switch(pattern, is_on != 0);
    }
}

// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pegel_statsd_flush() {
    flush();
}

// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pegel_statsd_errors() -> u64 {
    counts().errors
}
