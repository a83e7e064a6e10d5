//! Copies of a process's own lanes, for libraries that send its values elsewhere.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{header, put_bytes};
use crate::process_lanes::ProcessLanes;
use crate::reader::{LaneView, ParsedLane};

impl ProcessLanes {
    /// Visits a copy of each lane, with its number. Takes no lock, and delays no update. Visits
    /// nothing in a child of `fork` that has not written yet: the lanes are still its parent's.
    pub fn visit_copies(&self, buffer: &mut Vec<u8>, visit: &mut dyn FnMut(usize, &LaneView<'_>)) {
        if !self.is_open() {
            return;
        }
        for (number, lane) in self.lanes().enumerate() {
            let used = lane.used.load(Ordering::Acquire);
            let Some(base) = NonNull::new(lane.base.load(Ordering::Relaxed)) else {
                continue;
            };
            buffer.clear();
            for at in (0..used).step_by(8) {
                // SAFETY: within the mapping, because `used` is, in whole cache lines; aligned, as
                // the mapping is; an atomic, because other threads update it.
                let word: &AtomicU64 = unsafe { base.add(at).cast().as_ref() };
                buffer.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            // Series added during the copy are not in it.
            put_bytes(buffer, header::PUBLISHED, &(used as u64).to_le_bytes());
            // Other processes of the user may have overwritten it: then it is skipped.
            if let Ok(lane) = ParsedLane::parse(buffer) {
                visit(number, &lane.view(buffer));
            }
        }
    }
}
