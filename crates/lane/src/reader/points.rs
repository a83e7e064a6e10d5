//! Reads points from the ring of a lane: each point is returned once, or counted as lost.

use crate::layout::{POINT_BYTES, header, u64_at};
use crate::reader::lane_file::read_exactly;
use crate::reader::{LaneError, LaneFile};
use crate::ring::{self, SlotState};

/// One point of the ring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RingPoint {
    /// The index of its series in the lane.
    pub series: usize,
    pub time_ms: i64,
    pub value: f64,
}

/// The result of reading the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PointsRead {
    pub read: u64,
    /// Points that were overwritten before they were read, or never finished.
    pub lost: u64,
}

/// No program writes this many points between two reads: the lane is invalid.
const POINTS_MAX: u64 = 1 << 40;

/// How often reading stops at an unfinished point before that point is given up.
const STALLS_MAX: u32 = 10;

impl LaneFile {
    /// Returns the number of the next point to read: an agent keeps it to read no point twice.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Continues where an earlier reader stopped. Points before that are not counted as lost.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// Skips the points that are in the ring as of the last [`LaneFile::read`].
    pub fn skip_points(&mut self) {
        self.position = self.head;
    }

    /// Appends the points added since, as of the last [`LaneFile::read`], in the order of their
    /// numbers. `has_ended`: no writer will finish a partly written point.
    pub fn points(
        &mut self,
        buffer: &mut Vec<u8>,
        has_ended: bool,
        out: &mut Vec<RingPoint>,
    ) -> Result<PointsRead, LaneError> {
        let capacity = self.header().ring_points as u64;
        let mut done = PointsRead::default();
        if capacity == 0 || self.head <= self.position {
            return Ok(done);
        }
        let head = self.head;
        if head - self.position > POINTS_MAX {
            return Err(LaneError::Header("head of the ring"));
        }
        let first = self.position.max(head.saturating_sub(capacity));
        done.lost += first - self.position;
        self.copy_ring(buffer)?;
        // A writer takes its number before it touches the slot: the head shows which slots were
        // overwritten during the copy.
        let mut now = [0; 8];
        read_exactly(&self.fd, &mut now, header::RING_HEAD as u64)?;
        let overwritten = u64::from_le_bytes(now).saturating_sub(capacity);
        let mut next = first;
        while next < head {
            let at = (next % capacity) as usize * POINT_BYTES;
            let place = buffer.get(at..at + POINT_BYTES).unwrap_or_default();
            let word = |index: usize| u64_at(place, 8 * index).unwrap_or(0);
            let found = if next < overwritten {
                SlotState::Overwritten
            } else {
                ring::slot_state(word(0), next)
            };
            match (found, self.lane.point_series_at(word(3) as u32)) {
                (SlotState::Complete, Some(series)) => {
                    out.push(RingPoint {
                        series,
                        time_ms: word(1) as i64,
                        value: f64::from_bits(word(2)),
                    });
                    done.read += 1;
                }
                (SlotState::Pending, _) if !has_ended && self.should_wait(next, head) => break,
                _ => done.lost += 1,
            }
            next += 1;
        }
        self.position = next;
        Ok(done)
    }

    /// Returns whether to stop at an unfinished point and retry it next time.
    fn should_wait(&mut self, number: u64, head: u64) -> bool {
        let is_same = number == self.position && self.stalls > 0;
        self.stalls = if is_same { self.stalls + 1 } else { 1 };
        // Its writer may be dead; the points behind it must not be overwritten meanwhile.
        let is_close = head - number < self.header().ring_points as u64 / 2;
        self.stalls <= STALLS_MAX && is_close
    }

    fn copy_ring(&self, buffer: &mut Vec<u8>) -> Result<(), LaneError> {
        let (offset, points) = (self.header().ring_offset, self.header().ring_points);
        buffer.resize(points * POINT_BYTES, 0);
        read_exactly(&self.fd, buffer, offset as u64)
    }
}
