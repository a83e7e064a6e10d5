//! The lock-free parts in isolation, for the tests that explore every interleaving.

use crate::BUCKETS;
use crate::atomic::{AtomicU64, Ordering, fence};
use crate::cells;
use crate::layout::word;
use crate::ring::{self, RingSlot, SlotState};

/// A slot.
#[derive(Debug)]
pub struct Cells {
    line: [AtomicU64; word::LINE],
    /// Only two: those of the values that the tests record.
    buckets: Vec<AtomicU64>,
}

impl Cells {
    #[allow(clippy::new_without_default)] // Only tests create one.
    pub fn new() -> Cells {
        Cells {
            line: std::array::from_fn(|_| AtomicU64::new(0)),
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub fn add(&self, amount: u64) {
        cells::add(&self.line, &self.line[6], amount);
    }

    pub fn value(&self) -> u64 {
        self.line[6].load(Ordering::Relaxed)
    }

    pub fn add_float(&self, amount: f64) {
        cells::add_float(&self.line[5], amount);
    }

    pub fn float(&self) -> f64 {
        f64::from_bits(self.line[5].load(Ordering::Relaxed))
    }

    pub fn record(&self, value: f64) {
        cells::record(&self.line, &self.buckets, value);
    }

    /// Returns count, sum, smallest, largest.
    pub fn distribution(&self) -> (u64, f64, f64, f64) {
        let number = |index: usize, none: u64| {
            f64::from_bits(self.line[index].load(Ordering::Relaxed) ^ none)
        };
        let counts = self
            .buckets
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        (
            counts.sum(),
            number(word::SUM, 0),
            number(word::MIN, cells::MIN_UNSET),
            number(word::MAX, cells::MAX_UNSET),
        )
    }
}

/// A ring, and the way its reader copies it.
#[derive(Debug)]
pub struct Ring {
    head: AtomicU64,
    places: Vec<RingSlot>,
}

impl Ring {
    pub fn new(places: usize) -> Ring {
        let zero = || AtomicU64::new(0);
        let place = |_| RingSlot {
            sequence: zero(),
            time: zero(),
            value: zero(),
            series: zero(),
        };
        Ring {
            head: zero(),
            places: (0..places).map(place).collect(),
        }
    }

    pub fn push(&self, time: i64, value: i64) -> bool {
        ring::push(&self.head, &self.places, 1, time, value as f64)
    }

    /// Returns the complete points, as the agent reads them: the head, a copy, the head again.
    pub fn read(&self) -> Vec<(i64, i64)> {
        let capacity = self.places.len() as u64;
        let head = self.head.load(Ordering::Acquire);
        let first = head.saturating_sub(capacity);
        let mut copy = Vec::new();
        for number in first..head {
            let place = &self.places[(number % capacity) as usize];
            let sequence = place.sequence.load(Ordering::Acquire);
            let time = place.time.load(Ordering::Relaxed) as i64;
            let value = f64::from_bits(place.value.load(Ordering::Relaxed)) as i64;
            copy.push((number, sequence, time, value));
        }
        fence(Ordering::Acquire);
        let overwritten = self.head.load(Ordering::Relaxed).saturating_sub(capacity);
        copy.retain(|(number, sequence, ..)| {
            *number >= overwritten && ring::slot_state(*sequence, *number) == SlotState::Complete
        });
        copy.into_iter()
            .map(|(_, _, time, value)| (time, value))
            .collect()
    }
}
