//! The memory of one lane, as its writer sees it: series are appended and never removed.
//!
//! Other processes of the same user may overwrite the file at any time, so nothing read back from
//! it is used without a check.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::rand::GetRandomFlags;

use crate::lane_list;
use crate::lane_mapping::{self, LaneMapping};
use crate::layout::{HEADER_BYTES, LINE_BYTES, RING_OFFSET, header, put_bytes, spec_offset};
use crate::mpi_state::{AREA_BYTES, MpiStateArea};
use crate::series_spec::EncodedSeriesSpec;
use crate::writer_config::WriterConfig;

/// The memory of one lane.
#[derive(Debug)]
pub(crate) struct WriterLane {
    pub base: AtomicPtr<u8>,
    pub bytes: AtomicUsize,
    /// The published length as this process knows it: the file itself may be overwritten.
    pub used: AtomicUsize,
    pub has_ring: AtomicBool,
    /// Whether the MPI state is at its end.
    pub has_mpi_state: AtomicBool,
    pub is_published: AtomicBool,
}

/// The address of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesAddress {
    /// The start of the lane.
    pub base: NonNull<u8>,
    /// The offset of the series' description.
    pub entry: usize,
    /// The offset of its slot.
    pub slot: usize,
}

impl WriterLane {
    pub(crate) const fn new() -> WriterLane {
        WriterLane {
            base: AtomicPtr::new(null_mut()),
            bytes: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            has_ring: AtomicBool::new(false),
            has_mpi_state: AtomicBool::new(false),
            is_published: AtomicBool::new(false),
        }
    }

    /// Creates new memory for this lane, with its descriptions so far and zeroed slots.
    pub(crate) fn create_mapping(
        &self,
        settings: &WriterConfig,
        number: usize,
    ) -> Option<LaneMapping> {
        let mut id = [0; 16];
        let random = rustix::rand::getrandom(&mut id, GetRandomFlags::NONBLOCK);
        // Without its own identity it could not be distinguished from others.
        let place = settings
            .directory
            .as_ref()
            .filter(|_| random == Ok(id.len()));
        let bytes = self.bytes.load(Ordering::Relaxed);
        let mapped = lane_mapping::create_mapping(place, id, bytes, |memory| {
            settings.fill_header(memory, id, number, self);
            self.for_each_series(|at, description| {
                put_bytes(memory, at, description);
                true
            });
        });
        if let Some(list) = &settings.lane_list
            && mapped.as_ref().is_some_and(|mapped| mapped.is_published)
        {
            lane_list::append(list, id);
        }
        mapped
    }

    /// In a child: maps the same series at the same addresses, in memory not shared with the
    /// parent.
    pub(crate) fn remap_after_fork(&self, settings: &WriterConfig, number: usize) -> Option<()> {
        let base = NonNull::new(self.base.load(Ordering::Relaxed))?;
        let fresh = self.create_mapping(settings, number)?;
        // SAFETY: `base` is the mapping of this lane, of the same size, and the fork guard is
        // closed: no thread of this process holds a reference into it.
        self.set_mapping(&unsafe { fresh.move_to(base) }?);
        Some(())
    }

    pub(crate) fn set_mapping(&self, mapped: &LaneMapping) {
        self.is_published
            .store(mapped.is_published, Ordering::Relaxed);
        self.base.store(mapped.base.as_ptr(), Ordering::Relaxed);
    }

    /// Calls `each` with the offset and the description of every series, until it returns false.
    /// Other processes of the user may overwrite the lane at any time: each length is read once and
    /// checked before it is used, and offsets are whole cache lines within what this process
    /// published.
    fn for_each_series(&self, mut each: impl FnMut(usize, &[u8]) -> bool) {
        let Some(base) = NonNull::new(self.base.load(Ordering::Relaxed)) else {
            return;
        };
        let used = self.used.load(Ordering::Relaxed);
        let mut at = HEADER_BYTES;
        while at + spec_offset::TEXT <= used {
            // SAFETY: within the mapping, because `used` is; aligned, because `at` is; atomics, so
            // that the checked value is the used one.
            let [length, slot] = [spec_offset::BYTES, spec_offset::SLOT].map(|field| unsafe {
                let word: &AtomicU32 = base.add(at + field).cast().as_ref();
                u32::from_le(word.load(Ordering::Relaxed)) as usize
            });
            let is_whole = length.is_multiple_of(LINE_BYTES) && slot.is_multiple_of(LINE_BYTES);
            if !is_whole || slot < spec_offset::TEXT || slot > length || length > used - at {
                return;
            }
            // SAFETY: within the mapping, as checked above. The owning process never changes a
            // description; the slot behind it, which does change, is left out.
            let description = unsafe { std::slice::from_raw_parts(base.as_ptr().add(at), slot) };
            if !each(at, description) {
                return;
            }
            at += length;
        }
    }

    pub(crate) fn find(&self, description: &EncodedSeriesSpec) -> Option<SeriesAddress> {
        let base = NonNull::new(self.base.load(Ordering::Relaxed))?;
        let used = self.used.load(Ordering::Relaxed);
        let slot_bytes = description.entry_bytes - description.slot();
        let mut found = None;
        self.for_each_series(|at, there| {
            // Its help may have another length, and so its slot another offset.
            let slot = at + there.len();
            if description.is_same(there) && slot_bytes <= used - slot {
                found = Some(SeriesAddress {
                    base,
                    entry: at,
                    slot,
                });
            }
            found.is_none()
        });
        found
    }

    /// Appends a series; `None` if there is no room.
    pub(crate) fn append(&self, description: &EncodedSeriesSpec) -> Option<SeriesAddress> {
        let base = NonNull::new(self.base.load(Ordering::Relaxed))?;
        let at = self.used.load(Ordering::Relaxed);
        let end = at + description.entry_bytes;
        if end > self.series_room() {
            return None;
        }
        let bytes = description.bytes();
        // SAFETY: the range is within the mapping and not published yet, so nothing else accesses
        // it.
        let memory = unsafe { std::slice::from_raw_parts_mut(base.as_ptr().add(at), bytes.len()) };
        put_bytes(memory, 0, bytes);
        put_bytes(memory, spec_offset::OFFSET, &(at as u32).to_le_bytes());
        self.header_word(header::PUBLISHED)
            .store(end as u64, Ordering::Release);
        self.used.store(end, Ordering::Release);
        Some(SeriesAddress {
            base,
            entry: at,
            slot: at + description.slot(),
        })
    }

    /// Returns the offset at which the series must end.
    fn series_room(&self) -> usize {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if self.has_ring.load(Ordering::Relaxed) {
            RING_OFFSET
        } else if self.has_mpi_state.load(Ordering::Relaxed) {
            bytes.saturating_sub(AREA_BYTES)
        } else {
            bytes
        }
    }

    /// Returns the MPI state of the lane, if it has one.
    pub(crate) fn mpi_state(&self) -> Option<MpiStateArea> {
        let base = NonNull::new(self.base.load(Ordering::Relaxed))?;
        let offset = self.bytes.load(Ordering::Relaxed).checked_sub(AREA_BYTES)?;
        let has_state = self.has_mpi_state.load(Ordering::Relaxed);
        // SAFETY: the end of the mapping, which is never removed; series end before it, and offset
        // and length are whole cache lines.
        has_state.then(|| unsafe { MpiStateArea::new(base.add(offset)) })
    }

    /// Returns a word of the header that changes while other processes read it.
    pub(crate) fn header_word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: only called on lanes with memory; the offset is one of the header's, and aligned.
        unsafe { &*self.base.load(Ordering::Relaxed).add(offset).cast() }
    }
}
