//! The handles that a program holds, one for each series. They are small, `Copy`, and do nothing if
//! they belong to no series. Updates never block, allocate or fail, and are safe in signal
//! handlers.

use std::ptr::NonNull;
use std::time::Duration;

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::cells;
use crate::clock;
use crate::layout::{LaneKind, RING_OFFSET, RING_POINTS, header, word};
use crate::process_lanes::{ProcessLanes, process_lanes};
use crate::ring::{self, RingSlot};
use crate::series_spec::{CreateError, LaneSeriesSpec};
use crate::writer_lane::SeriesAddress;
use crate::{Aggregation, BUCKETS};

type CacheLine = [AtomicU64; word::LINE];

/// The address of a series in the lanes of a process, or none.
#[derive(Debug, Clone, Copy)]
struct SlotPointer {
    process_lanes: &'static ProcessLanes,
    /// The slot; for points the description.
    at: Option<NonNull<u8>>,
}

// SAFETY: it points to shared memory that stays mapped and is accessed only through atomics.
unsafe impl Send for SlotPointer {}
// SAFETY: as above.
unsafe impl Sync for SlotPointer {}

impl SlotPointer {
    const fn none(process_lanes: &'static ProcessLanes) -> SlotPointer {
        SlotPointer {
            process_lanes,
            at: None,
        }
    }

    fn at(process_lanes: &'static ProcessLanes, made: SeriesAddress, offset: usize) -> SlotPointer {
        // SAFETY: a series' offsets are within its lane.
        let at = unsafe { made.base.add(offset) };
        SlotPointer {
            process_lanes,
            at: Some(at),
        }
    }

    #[inline]
    fn line(&self, stripe: usize) -> Option<&'static CacheLine> {
        let at = self.at.filter(|_| self.process_lanes.is_ready())?;
        // SAFETY: slots stay mapped until the process ends, begin at a cache line, have at least
        // one line for each stripe, and are only used through atomics.
        Some(unsafe { at.cast::<CacheLine>().add(stripe).as_ref() })
    }
}

/// Handles created from a [`LaneSeriesSpec`].
pub trait Handle: Copy + Sized {
    /// Returns a handle that does nothing.
    fn none() -> Self;

    fn create_in(
        process_lanes: &'static ProcessLanes,
        spec: &LaneSeriesSpec<'_>,
    ) -> Result<Self, CreateError>;

    /// Creates the series in the lanes of this process.
    fn create(spec: &LaneSeriesSpec<'_>) -> Result<Self, CreateError> {
        Self::create_in(process_lanes(), spec)
    }
}

/// Handles as addresses, for programs that are not written in Rust.
pub trait RawHandle: Handle {
    /// Returns an address that represents the handle; null if it does nothing.
    fn as_ptr(self) -> *mut u8;

    /// Returns the handle of an address from [`RawHandle::as_ptr`], in the lanes of this process.
    ///
    /// # Safety
    ///
    /// `at` must be null or come from a handle of the same type.
    // SAFETY: upheld by the caller, see above.
    unsafe fn from_ptr(at: *mut u8) -> Self;
}

macro_rules! handle {
    ($name:ident, $kind:expr, $offset:ident) => {
        impl Handle for $name {
            fn none() -> $name {
                $name(SlotPointer::none(process_lanes()))
            }

            fn create_in(
                process_lanes: &'static ProcessLanes,
                spec: &LaneSeriesSpec<'_>,
            ) -> Result<$name, CreateError> {
                let spec = LaneSeriesSpec {
                    kind: $kind,
                    stripes: 1,
                    ..*spec
                };
                let made = process_lanes.create(&spec)?;
                Ok($name(SlotPointer::at(process_lanes, made, made.$offset)))
            }
        }

        impl RawHandle for $name {
            fn as_ptr(self) -> *mut u8 {
                self.0.at.map_or(std::ptr::null_mut(), NonNull::as_ptr)
            }

            // SAFETY: upheld by the caller, see `RawHandle::from_ptr`.
            unsafe fn from_ptr(at: *mut u8) -> $name {
                $name(SlotPointer {
                    process_lanes: process_lanes(),
                    at: NonNull::new(at),
                })
            }
        }
    };
}

/// A whole number that only grows.
#[derive(Debug, Clone, Copy)]
pub struct Counter(SlotPointer);

handle!(Counter, LaneKind::Counter, slot);

impl Counter {
    /// Adds. An amount of 2^63 or more was a negative number before a cast: it is ignored, and that
    /// is counted.
    #[inline]
    pub fn add(&self, amount: u64) {
        if let Some(line) = self.0.line(0) {
            cells::add(line, &line[word::VALUE], amount);
        }
    }
}

/// A counter for many threads at once: its updates are spread over several cache lines.
#[derive(Debug, Clone, Copy)]
pub struct StripedCounter(SlotPointer, u8);

impl Handle for StripedCounter {
    fn none() -> StripedCounter {
        StripedCounter(SlotPointer::none(process_lanes()), 1)
    }

    fn create_in(
        process_lanes: &'static ProcessLanes,
        spec: &LaneSeriesSpec<'_>,
    ) -> Result<StripedCounter, CreateError> {
        let spec = LaneSeriesSpec {
            kind: LaneKind::Counter,
            ..*spec
        };
        let made = process_lanes.create(&spec)?;
        let anchor = SlotPointer::at(process_lanes, made, made.slot);
        Ok(StripedCounter(anchor, spec.stripes))
    }
}

impl StripedCounter {
    #[inline]
    pub fn add(&self, amount: u64) {
        if let Some(line) = self.0.line(stripe(self.1)) {
            cells::add(line, &line[word::VALUE], amount);
        }
    }
}

/// Returns the stripe of this thread: threads have their own stacks, so the address of any local
/// distinguishes them without a call. Two threads that share a stripe are slower, not wrong.
#[inline]
fn stripe(stripes: u8) -> usize {
    let here = 0_u8;
    let megabyte = (&raw const here).addr() as u64 >> 20;
    let mixed = megabyte.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * u64::from(stripes)) >> 32) as usize
}

/// A floating point number that only grows.
#[derive(Debug, Clone, Copy)]
pub struct FloatCounter(SlotPointer);

handle!(FloatCounter, LaneKind::FloatCounter, slot);

impl FloatCounter {
    /// Adds. A negative amount or NaN is ignored, and that is counted.
    #[inline]
    pub fn add(&self, amount: f64) {
        let Some(line) = self.0.line(0) else { return };
        if amount.is_finite() && amount >= 0.0 {
            cells::add_float(&line[word::VALUE], amount);
        } else {
            line[word::IGNORED].fetch_add(1, Relaxed);
        }
    }
}

/// A number that goes up and down.
#[derive(Debug, Clone, Copy)]
pub struct Gauge(SlotPointer);

handle!(Gauge, LaneKind::Gauge, slot);

impl Gauge {
    #[inline]
    pub fn set(&self, value: f64) {
        if let Some(line) = self.0.line(0) {
            line[word::VALUE].store(value.to_bits(), Relaxed);
            line[word::GAUGE_SET_MS].store(clock::recent_ms() as u64, Relaxed);
        }
    }

    /// Adds to the current value; starts at zero if none was set.
    #[inline]
    pub fn add(&self, amount: f64) {
        if let Some(line) = self.0.line(0) {
            cells::add_float(&line[word::VALUE], amount);
            line[word::GAUGE_SET_MS].store(clock::recent_ms() as u64, Relaxed);
        }
    }
}

/// Hits, bytes and time of one call.
#[derive(Debug, Clone, Copy)]
pub struct Calls(SlotPointer);

handle!(Calls, LaneKind::Calls, slot);

impl Calls {
    #[inline]
    pub fn add(&self, bytes: u64, nanos: u64) {
        if let Some(line) = self.0.line(0) {
            line[word::CALL_HITS].fetch_add(1, Relaxed);
            cells::add(line, &line[word::CALL_BYTES], bytes);
            cells::add(line, &line[word::CALL_NANOS], nanos);
        }
    }

    /// Adds many calls at once that were counted elsewhere.
    #[inline]
    pub fn add_many(&self, hits: u64, bytes: u64, nanos: u64) {
        if let Some(line) = self.0.line(0) {
            cells::add(line, &line[word::CALL_HITS], hits);
            cells::add(line, &line[word::CALL_BYTES], bytes);
            cells::add(line, &line[word::CALL_NANOS], nanos);
        }
    }

    /// Like `add`, if the program ensures that no two threads call it at once: half the cost. A
    /// reader still sees each number whole.
    #[inline]
    pub fn add_alone(&self, bytes: u64, nanos: u64) {
        if let Some(line) = self.0.line(0) {
            let grow = |index: usize, amount: u64| {
                let before = line[index].load(Relaxed);
                line[index].store(before.wrapping_add(amount), Relaxed);
            };
            grow(word::CALL_HITS, 1);
            grow(word::CALL_BYTES, bytes);
            grow(word::CALL_NANOS, nanos);
        }
    }

    /// Counts a call whose bytes and time are not known.
    #[inline]
    pub fn hit(&self) {
        if let Some(line) = self.0.line(0) {
            line[word::CALL_HITS].fetch_add(1, Relaxed);
        }
    }
}

/// The distribution of values: buckets, count, sum, smallest and largest.
#[derive(Debug, Clone, Copy)]
pub struct Histogram(SlotPointer);

handle!(Histogram, LaneKind::Histogram, slot);

impl Histogram {
    /// Records one value. An infinite value or NaN is ignored, and that is counted.
    #[inline]
    pub fn record(&self, value: f64) {
        record(self.0, value);
    }
}

/// A histogram of seconds.
#[derive(Debug, Clone, Copy)]
pub struct Timer(SlotPointer);

handle!(Timer, LaneKind::Timer, slot);

impl Timer {
    #[inline]
    pub fn record(&self, elapsed: Duration) {
        record(self.0, elapsed.as_secs_f64());
    }

    #[inline]
    pub fn record_seconds(&self, seconds: f64) {
        record(self.0, seconds);
    }
}

#[inline]
fn record(anchor: SlotPointer, value: f64) {
    let Some(line) = anchor.line(0) else { return };
    let Some(at) = anchor.at else { return };
    // SAFETY: the first line of a histogram's slot is followed by its buckets, all atomics.
    let buckets = unsafe {
        let first = at.cast::<AtomicU64>().add(word::BUCKETS);
        std::slice::from_raw_parts(first.as_ptr(), BUCKETS)
    };
    cells::record(line, buckets, value);
}

/// Values with their own timestamps.
#[derive(Debug, Clone, Copy)]
pub struct Points(SlotPointer);

handle!(Points, LaneKind::Point, entry);

impl Points {
    /// Adds a point at the current time.
    pub fn add(&self, value: f64) {
        self.add_at(value, clock::now_ms());
    }

    /// Adds a point at a time in milliseconds since 1970. The ring holds 2048 points of all series
    /// together; points that arrive faster than the agent reads are overwritten, and counted there.
    pub fn add_at(&self, value: f64, time_ms: i64) {
        let Some(at) = self.0.at.filter(|_| self.0.process_lanes.is_ready()) else {
            return;
        };
        let Some((base, offset)) = self.0.process_lanes.ring_of(at) else {
            return;
        };
        // SAFETY: `base` is the start of a mapped lane with a ring, whose offset and size are
        // fixed. The ring consists of atomics, for which all bit patterns are valid.
        let (head, places) = unsafe {
            let head: &AtomicU64 = base.add(header::RING_HEAD).cast().as_ref();
            let first = base.add(RING_OFFSET).cast::<RingSlot>();
            let places = std::slice::from_raw_parts(first.as_ptr(), RING_POINTS);
            (head, places)
        };
        ring::push(head, places, offset as u64, time_ms, value);
    }
}

impl Aggregation {
    /// Parses a name: `last`, `min`, `max`, `sum`.
    pub fn from_name(name: &str) -> Option<Aggregation> {
        match name {
            "last" => Some(Aggregation::Last),
            "min" => Some(Aggregation::Min),
            "max" => Some(Aggregation::Max),
            "sum" => Some(Aggregation::Sum),
            _ => None,
        }
    }
}
