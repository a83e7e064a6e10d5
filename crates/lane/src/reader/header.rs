//! The header of a lane: the identity of its writer, and sizes.

use crate::layout::{
    self, HEADER_BYTES, LANE_BYTES_MAX, LINE_BYTES, POINT_BYTES, header, u32_at, u64_at,
};
use crate::mpi_state::AREA_BYTES;
use crate::reader::LaneError;

/// The writer of a lane, as given by its header when it was first read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneHeader {
    /// 128 random bits.
    pub id: [u8; 16],
    /// As the process itself sees it; see [`LaneHeader::pid_namespace`].
    pub pid: u32,
    pub uid: u32,
    /// Clock ticks from boot to the start of the process; 0 if unknown.
    pub start_ticks: u64,
    /// The inode of the pid namespace of `pid`; 0 if unknown.
    pub pid_namespace: u64,
    pub created_ms: i64,
    /// Empty if there is none.
    pub command: String,
    /// Empty if there is none.
    pub rank: String,
    /// Empty if there is none.
    pub job: String,
    /// 0 for the first lane of a process; a process with many series has several.
    pub number: u32,
    pub(crate) file_bytes: usize,
    pub(crate) ring_offset: usize,
    pub(crate) ring_points: usize,
    /// The offset of the MPI state, if there is one of a known length.
    pub(crate) mpi_state_offset: Option<usize>,
}

/// Returns the published length of the series, from the header.
pub(crate) fn published_length(bytes: &[u8]) -> Result<u64, LaneError> {
    u64_at(bytes, header::PUBLISHED).ok_or(LaneError::Truncated {
        wanted: HEADER_BYTES,
        found: bytes.len(),
    })
}

pub(crate) fn parse_header(bytes: &[u8]) -> Result<LaneHeader, LaneError> {
    let short = LaneError::Truncated {
        wanted: HEADER_BYTES,
        found: bytes.len(),
    };
    let Some(bytes) = bytes.get(..HEADER_BYTES) else {
        return Err(short);
    };
    if bytes.get(..layout::MAGIC.len()) != Some(&layout::MAGIC) {
        return Err(LaneError::Magic);
    }
    let number = |at| u32_at(bytes, at).unwrap_or(0);
    let long = |at| u64_at(bytes, at).unwrap_or(0);
    if number(header::VERSION) != layout::VERSION {
        return Err(LaneError::Version(number(header::VERSION)));
    }
    if number(header::HEADER_BYTES) as usize != HEADER_BYTES {
        return Err(LaneError::Header("length"));
    }
    let file_bytes = number(header::FILE_BYTES) as usize;
    if !(HEADER_BYTES..=LANE_BYTES_MAX).contains(&file_bytes) {
        return Err(LaneError::Header("file length"));
    }
    let ring_offset = number(header::RING_OFFSET) as usize;
    let ring_points = number(header::RING_POINTS) as usize;
    // Bounded above, so this cannot overflow.
    let ring_end = ring_offset.checked_add(ring_points.saturating_mul(POINT_BYTES));
    let is_ring = ring_points.is_power_of_two()
        && ring_offset >= HEADER_BYTES
        && ring_offset.is_multiple_of(LINE_BYTES)
        && ring_end.is_some_and(|end| end <= file_bytes);
    if ring_points > 0 && !is_ring {
        return Err(LaneError::Header("ring"));
    }
    let state_offset = number(header::MPI_STATE_OFFSET) as usize;
    let state_bytes = number(header::MPI_STATE_BYTES) as usize;
    let state_end = state_offset.checked_add(state_bytes);
    let is_state = state_offset >= HEADER_BYTES
        && state_offset.is_multiple_of(LINE_BYTES)
        && state_end.is_some_and(|end| end <= file_bytes);
    if state_bytes > 0 && !is_state {
        return Err(LaneError::Header("MPI state"));
    }
    let mut id = [0; 16];
    id.copy_from_slice(bytes.get(header::ID..header::ID + 16).unwrap_or(&[0; 16]));
    Ok(LaneHeader {
        id,
        pid: number(header::PID),
        uid: number(header::UID),
        start_ticks: long(header::START_TICKS),
        pid_namespace: long(header::PID_NAMESPACE),
        created_ms: long(header::CREATED_MS) as i64,
        command: text(bytes, header::COMMAND, header::COMMAND_BYTES)
            .ok_or(LaneError::Header("command"))?,
        rank: text(bytes, header::RANK, header::RANK_BYTES).ok_or(LaneError::Header("rank"))?,
        job: text(bytes, header::JOB, header::JOB_BYTES).ok_or(LaneError::Header("job"))?,
        number: number(header::NUMBER),
        file_bytes,
        ring_offset,
        ring_points,
        mpi_state_offset: (state_bytes == AREA_BYTES).then_some(state_offset),
    })
}

/// Returns a text of the header, up to its first zero byte; `None` if it is not valid in a label.
fn text(bytes: &[u8], at: usize, space: usize) -> Option<String> {
    let field = bytes.get(at..at + space)?;
    let end = field.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(field.get(..end)?).ok()?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}
