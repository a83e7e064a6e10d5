//! The functions of `pegel.h`. A handle is the address of its series in shared memory: nothing is
//! allocated for it, and nothing has to be freed.

mod error;
mod labels;
mod marks;
mod statsd;

use std::ffi::{CStr, c_char, c_int};

use pegel_lane::{
    Aggregation, Counter, FloatCounter, Gauge, Histogram, LaneKind, LaneSeriesSpec, Points,
    RawHandle, Timer,
};

use error::{BadText, remember};

/// The target of the pointers of C; never dereferenced here.
#[repr(C)]
#[derive(Debug)]
pub struct Opaque {
    _private: [u8; 0],
}

/// Creates a series from C strings. On error returns null and keeps the reason for `pegel_error`.
///
/// # Safety
///
/// The texts must be null or end with a zero byte.
// SAFETY: upheld by the caller, see above.
unsafe fn make<T: RawHandle>(
    kind: LaneKind,
    name: *const c_char,
    help: *const c_char,
    labels: *const c_char,
    aggregation: c_int,
) -> *mut Opaque {
    // SAFETY: upheld by the caller, see above.
    let texts = unsafe { (text(name), text(help), text(labels)) };
    let made = texts.0.and_then(|name| {
        let labels = labels::parse(texts.2?)?;
        let pairs: Vec<(&str, &str)> = labels
            .pairs
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        let aggregation = Aggregation::ALL
            .into_iter()
            .find(|way| *way as c_int == aggregation)
            .ok_or(BadText::Aggregation)?;
        let spec = LaneSeriesSpec {
            help: texts.1?,
            labels: &pairs,
            aggregation,
            with_pid: labels.with_pid,
            with_rank: labels.with_rank,
            ..LaneSeriesSpec::new(kind, name)
        };
        let made = T::create(&spec).map_err(BadText::Refused)?;
        pegel_client_datagrams::statsd_output::start_from_environment();
        Ok(made)
    });
    remember(made.as_ref().err().copied());
    made.map_or(std::ptr::null_mut(), |handle| handle.as_ptr().cast())
}

/// # Safety
///
/// Null, or a text that ends with a zero byte and lives as long as the result is used.
// SAFETY: upheld by the caller, see above.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, BadText> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: not null; ends with a zero byte, as upheld by the caller.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| BadText::Utf8)
}

macro_rules! make {
    ($function:ident, $handle:ty, $kind:expr) => {
        /// # Safety
        ///
        /// The texts must be null or end with a zero byte.
        // SAFETY: upheld by the C caller, see above; no other library defines this name.
        #[unsafe(no_mangle)]
        // SAFETY: as above.
        pub unsafe extern "C" fn $function(
            name: *const c_char,
            help: *const c_char,
            labels: *const c_char,
        ) -> *mut Opaque {
            // SAFETY: upheld by the C caller, see above.
            unsafe { make::<$handle>($kind, name, help, labels, 0) }
        }
    };
}

make!(pegel_counter_new, Counter, LaneKind::Counter);
make!(
    pegel_float_counter_new,
    FloatCounter,
    LaneKind::FloatCounter
);
make!(pegel_histogram_new, Histogram, LaneKind::Histogram);
make!(pegel_timer_new, Timer, LaneKind::Timer);
make!(pegel_point_new, Points, LaneKind::Point);

/// # Safety
///
/// The texts must be null or end with a zero byte.
// SAFETY: upheld by the C caller, see above; no other library defines this name.
#[unsafe(no_mangle)]
// SAFETY: as above.
pub unsafe extern "C" fn pegel_gauge_new(
    name: *const c_char,
    help: *const c_char,
    labels: *const c_char,
    aggregation: c_int,
) -> *mut Opaque {
    // SAFETY: upheld by the C caller, see above.
    unsafe { make::<Gauge>(LaneKind::Gauge, name, help, labels, aggregation) }
}

macro_rules! update {
    ($function:ident, $handle:ty, |$found:ident $(, $argument:ident: $type:ty)*| $work:expr) => {
        /// # Safety
        ///
        /// The handle must be null or come from the function that creates its kind.
        // SAFETY: upheld by the C caller, see above; no other library defines this name.
        #[unsafe(no_mangle)]
        // SAFETY: as above.
        pub unsafe extern "C" fn $function(handle: *mut Opaque $(, $argument: $type)*) {
            // SAFETY: upheld by the C caller, see above.
            let $found = unsafe { <$handle>::from_ptr(handle.cast()) };
            $work
        }
    };
}

update!(pegel_add, Counter, |counter, amount: u64| counter
    .add(amount));
update!(pegel_add_float, FloatCounter, |counter, amount: f64| {
    counter.add(amount)
});
update!(pegel_set, Gauge, |gauge, value: f64| gauge.set(value));
update!(pegel_change, Gauge, |gauge, by: f64| gauge.add(by));
update!(pegel_record, Histogram, |histogram, value: f64| histogram
    .record(value));
update!(pegel_record_seconds, Timer, |timer, seconds: f64| timer
    .record_seconds(seconds));
update!(pegel_point_add, Points, |point, value: f64| point
    .add(value));
update!(
    pegel_point_add_at,
    Points,
    |point, value: f64, time_ms: i64| {
        point.add_at(value, time_ms);
    }
);
update!(pegel_stop, Timer, |timer, since: u64| {
    let elapsed = pegel_lane::monotonic_ns().saturating_sub(since);
    timer.record_seconds(elapsed as f64 / 1e9);
});

// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub extern "C" fn pegel_start() -> u64 {
    pegel_lane::monotonic_ns()
}

// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub extern "C" fn pegel_is_published() -> c_int {
    c_int::from(pegel_lane::process_lanes().is_published())
}

// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub extern "C" fn pegel_error() -> *const c_char {
    error::last()
}

// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub extern "C" fn pegel_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
