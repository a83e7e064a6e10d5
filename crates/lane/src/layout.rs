//! The layout of a lane: offsets and sizes; see the diagram in the documentation of the crate.

/// The size of a cache line: processors contend for writes to the same one.
pub(crate) const LINE_BYTES: usize = 64;
pub(crate) const HEADER_BYTES: usize = 512;
pub(crate) const MAGIC: [u8; 8] = *b"PEGLANE\n";
pub(crate) const VERSION: u32 = 1;

/// The largest file that a reader accepts as a lane.
pub const LANE_BYTES_MAX: usize = 4 << 20;
/// The size of the first lane of a process. A thousand programs take 32 MB of shared memory.
pub const FIRST_LANE_BYTES: usize = 32 << 10;
/// Each further lane of a process is twice as large as the previous one, up to this.
pub(crate) const LARGE_LANE_BYTES: usize = 1 << 20;
/// In a lane for points the ring follows the series.
pub(crate) const RING_OFFSET: usize = 16 << 10;
pub(crate) const RING_POINTS: usize = 2048;
pub(crate) const RING_LANE_BYTES: usize = RING_OFFSET + RING_POINTS * POINT_BYTES;
pub(crate) const POINT_BYTES: usize = 32;

/// The most bytes of name, help and labels of one series together.
pub const TEXT_BYTES_MAX: usize = 4096;
pub const LABELS_MAX: usize = 32;
pub(crate) const STRIPES_MAX: usize = 64;

/// Offsets in the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 8;
    pub(crate) const HEADER_BYTES: usize = 12;
    pub(crate) const ID: usize = 16;
    pub(crate) const PID: usize = 32;
    pub(crate) const UID: usize = 36;
    pub(crate) const START_TICKS: usize = 40;
    pub(crate) const PID_NAMESPACE: usize = 48;
    pub(crate) const CREATED_MS: usize = 56;
    pub(crate) const FILE_BYTES: usize = 64;
    pub(crate) const RING_OFFSET: usize = 68;
    pub(crate) const RING_POINTS: usize = 72;
    pub(crate) const NUMBER: usize = 76;
    pub(crate) const PUBLISHED: usize = 80;
    pub(crate) const REFUSED: usize = 88;
    pub(crate) const MPI_STATE_OFFSET: usize = 96;
    pub(crate) const MPI_STATE_BYTES: usize = 100;
    pub(crate) const RING_HEAD: usize = 128;
    pub(crate) const COMMAND: usize = 192;
    pub(crate) const COMMAND_BYTES: usize = 32;
    pub(crate) const RANK: usize = 224;
    pub(crate) const RANK_BYTES: usize = 32;
    pub(crate) const JOB: usize = 256;
    pub(crate) const JOB_BYTES: usize = 256;
}

/// Offsets in the description of a series.
pub(crate) mod spec_offset {
    pub(crate) const BYTES: usize = 0;
    pub(crate) const KIND: usize = 4;
    pub(crate) const AGGREGATION: usize = 5;
    pub(crate) const STRIPES: usize = 6;
    pub(crate) const FLAGS: usize = 7;
    pub(crate) const SLOT: usize = 8;
    pub(crate) const NAME_BYTES: usize = 12;
    pub(crate) const HELP_BYTES: usize = 14;
    pub(crate) const LABEL_BYTES: usize = 16;
    pub(crate) const LABEL_COUNT: usize = 18;
    pub(crate) const LEVEL: usize = 19;
    pub(crate) const OFFSET: usize = 20;
    pub(crate) const HASH: usize = 24;
    pub(crate) const TEXT: usize = 32;

    pub(crate) const FLAG_PID: u8 = 1;
    pub(crate) const FLAG_RANK: u8 = 2;
}

/// Words of a slot.
pub(crate) mod word {
    pub(crate) const VALUE: usize = 0;
    pub(crate) const GAUGE_SET_MS: usize = 1;
    pub(crate) const CALL_HITS: usize = 0;
    pub(crate) const CALL_BYTES: usize = 1;
    pub(crate) const CALL_NANOS: usize = 2;
    pub(crate) const SUM: usize = 0;
    pub(crate) const MIN: usize = 1;
    pub(crate) const MAX: usize = 2;
    pub(crate) const IGNORED: usize = 7;
    pub(crate) const BUCKETS: usize = 8;
    pub(crate) const LINE: usize = 8;
}

/// The kind of a series, which determines its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LaneKind {
    /// A whole number that only grows.
    Counter = 1,
    /// A floating point number that only grows: seconds, joules.
    FloatCounter = 2,
    Gauge = 3,
    /// Hits, bytes and time of one call, in one cache line.
    Calls = 4,
    Histogram = 5,
    /// A histogram of seconds.
    Timer = 6,
    /// Points with their own timestamps, in the lane's ring.
    Point = 7,
}

impl LaneKind {
    pub const ALL: [LaneKind; 7] = [
        LaneKind::Counter,
        LaneKind::FloatCounter,
        LaneKind::Gauge,
        LaneKind::Calls,
        LaneKind::Histogram,
        LaneKind::Timer,
        LaneKind::Point,
    ];

    pub(crate) fn from_byte(byte: u8) -> Option<LaneKind> {
        LaneKind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Returns the size of one stripe of its slot.
    pub(crate) const fn slot_bytes(self) -> usize {
        match self {
            LaneKind::Counter | LaneKind::FloatCounter | LaneKind::Gauge | LaneKind::Calls => {
                LINE_BYTES
            }
            LaneKind::Histogram | LaneKind::Timer => LINE_BYTES + 8 * crate::BUCKETS,
            LaneKind::Point => 0,
        }
    }

    pub(crate) const fn can_stripe(self) -> bool {
        matches!(
            self,
            LaneKind::Counter | LaneKind::FloatCounter | LaneKind::Calls
        )
    }
}

/// How the values of one gauge in several programs are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Aggregation {
    /// The value that was set last.
    #[default]
    Last = 0,
    Min = 1,
    Max = 2,
    Sum = 3,
}

impl Aggregation {
    pub const ALL: [Aggregation; 4] = [
        Aggregation::Last,
        Aggregation::Min,
        Aggregation::Max,
        Aggregation::Sum,
    ];

    pub(crate) fn from_byte(byte: u8) -> Option<Aggregation> {
        Aggregation::ALL.into_iter().find(|way| *way as u8 == byte)
    }
}

/// Rounds up to the next multiple of a cache line.
pub(crate) const fn round_up_to_line(bytes: usize) -> usize {
    bytes.div_ceil(LINE_BYTES) * LINE_BYTES
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes `value` at `at`; bytes that do not fit are left out, so that a caller's mistake cannot
/// panic.
pub(crate) fn put_bytes(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + value.len()) {
        to.copy_from_slice(value);
    }
}
