//! The lanes of this process: created with the first series, and created again in a child of
//! `fork`.
//!
//! Handles call [`ProcessLanes::is_ready`] before every update, which is a load in the common case.
//! Creating a series takes the fork guard's lock; updates never do, except the first one in a
//! child.

use std::cell::UnsafeCell;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fork_guard::{ForkGuard, ForkGuardLock};
use crate::layout::{
    FIRST_LANE_BYTES, HEADER_BYTES, LARGE_LANE_BYTES, LaneKind, RING_LANE_BYTES, RING_OFFSET,
    header,
};
use crate::mpi_state::MpiStateArea;
use crate::series_spec::{CreateError, EncodedSeriesSpec, LaneSeriesSpec};
use crate::stale_lanes::remove_stale_lanes;
use crate::writer_config::{WriterConfig, WriterConfigSource};
use crate::writer_lane::{SeriesAddress, WriterLane};

/// The most lanes of one process: room for some 60,000 counters.
const LANES_MAX: usize = 16;

/// What a new lane has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneContents {
    Series,
    Points,
    SeriesAndMpiState,
}

/// Everything that a process writes to. There is one for the whole process, [`process_lanes`].
#[derive(Debug)]
pub struct ProcessLanes {
    fork_guard: ForkGuard,
    /// Accessed only under the lock of the fork guard.
    settings: UnsafeCell<WriterConfig>,
    /// Lanes are added one by one and never removed, so that pointers into them stay valid.
    count: AtomicUsize,
    lanes: [WriterLane; LANES_MAX],
}

// SAFETY: `settings` is only accessed under the lock of `fork_guard`; everything else is atomic.
unsafe impl Sync for ProcessLanes {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for ProcessLanes {}

/// Returns the instance of this process.
#[inline]
pub fn process_lanes() -> &'static ProcessLanes {
    static HOME: ProcessLanes = ProcessLanes::new(WriterConfigSource::Environment);
    &HOME
}

impl ProcessLanes {
    const fn new(source: WriterConfigSource) -> ProcessLanes {
        ProcessLanes {
            fork_guard: ForkGuard::new(),
            settings: UnsafeCell::new(WriterConfig {
                source,
                directory: None,
                lane_list: None,
                template: [0; HEADER_BYTES],
            }),
            count: AtomicUsize::new(0),
            lanes: [const { WriterLane::new() }; LANES_MAX],
        }
    }

    /// Creates another instance in its own directory, for tests and benches; it lives until the
    /// process ends.
    pub fn in_directory(path: impl Into<PathBuf>) -> &'static ProcessLanes {
        Box::leak(Box::new(ProcessLanes::new(WriterConfigSource::Directory(
            path.into(),
        ))))
    }

    /// Returns whether an agent can read what is counted here.
    pub fn is_published(&self) -> bool {
        let Some(_lock) = self.fork_guard.lock() else {
            return false;
        };
        let mut lanes = self.lanes();
        lanes
            .next()
            .is_some_and(|lane| lane.is_published.load(Ordering::Relaxed))
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = &WriterLane> {
        self.lanes.iter().take(self.count.load(Ordering::Acquire))
    }

    /// Returns the start of the lane with a ring that contains the description `at`, and its offset
    /// there. Determined from this process's own memory: the bytes of a lane may be overwritten by
    /// other processes of the user.
    #[inline]
    pub(crate) fn ring_of(&self, at: NonNull<u8>) -> Option<(NonNull<u8>, usize)> {
        self.lanes().find_map(|lane| {
            let base = NonNull::new(lane.base.load(Ordering::Relaxed))?;
            let offset = at.addr().get().checked_sub(base.addr().get())?;
            let is_inside = offset < RING_OFFSET && lane.has_ring.load(Ordering::Relaxed);
            is_inside.then_some((base, offset))
        })
    }

    /// Returns whether the lanes are those of this process.
    pub(crate) fn is_open(&self) -> bool {
        self.fork_guard.is_open()
    }

    /// Returns whether the lanes are those of this process, without a call: false if that is not
    /// certain.
    #[inline(always)]
    pub fn is_certainly_open(&self) -> bool {
        self.fork_guard.is_certainly_open()
    }

    /// Returns whether slots may be written. In a child of `fork` the first call creates its lanes.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.fork_guard.is_open() || self.reopen()
    }

    #[cold]
    fn reopen(&self) -> bool {
        match self.fork_guard.lock() {
            Some(lock) => self.fork_guard.is_open() || self.prepare(&lock).is_ok(),
            None => false,
        }
    }

    /// Creates a series, or finds the existing one.
    pub(crate) fn create(&self, spec: &LaneSeriesSpec<'_>) -> Result<SeriesAddress, CreateError> {
        let description = EncodedSeriesSpec::new(spec)?;
        let lock = self.fork_guard.lock().ok_or(CreateError::Memory)?;
        if !self.fork_guard.is_open() {
            self.prepare(&lock)?;
        }
        if let Some(made) = self.lanes().find_map(|lane| lane.find(&description)) {
            return Ok(made);
        }
        let wants_ring = spec.kind == LaneKind::Point;
        for lane in self.lanes() {
            if lane.has_ring.load(Ordering::Relaxed) == wants_ring
                && let Some(made) = lane.append(&description)
            {
                return Ok(made);
            }
        }
        let contents = if wants_ring {
            LaneContents::Points
        } else {
            LaneContents::Series
        };
        let made = self.add_lane(&lock, contents)?.append(&description);
        made.ok_or(CreateError::Full)
    }

    /// Creates a lane with the MPI state of this process, or finds the existing one.
    pub fn mpi_state(&self) -> Result<MpiStateArea, CreateError> {
        let lock = self.fork_guard.lock().ok_or(CreateError::Memory)?;
        if !self.fork_guard.is_open() {
            self.prepare(&lock)?;
        }
        let found = self.lanes().find_map(WriterLane::mpi_state);
        if let Some(area) = found {
            return Ok(area);
        }
        let lane = self.add_lane(&lock, LaneContents::SeriesAndMpiState)?;
        lane.mpi_state().ok_or(CreateError::Memory)
    }

    /// Reads the environment the first time; in a child, creates its own lanes.
    fn prepare(&self, lock: &ForkGuardLock<'_>) -> Result<(), CreateError> {
        let settings = self.settings(lock);
        settings.resolve()?;
        for (number, lane) in self.lanes().enumerate() {
            lane.remap_after_fork(settings, number)
                .ok_or(CreateError::Memory)?;
        }
        lock.open();
        Ok(())
    }

    #[allow(clippy::mut_from_ref)] // The lock makes it exclusive.
    fn settings<'a>(&self, _: &'a ForkGuardLock<'_>) -> &'a mut WriterConfig {
        // SAFETY: the caller holds the lock, and keeps no other reference while it holds this one.
        unsafe { &mut *self.settings.get() }
    }

    fn add_lane(
        &self,
        lock: &ForkGuardLock<'_>,
        contents: LaneContents,
    ) -> Result<&WriterLane, CreateError> {
        let number = self.count.load(Ordering::Relaxed);
        let Some(lane) = self.lanes.get(number) else {
            self.count_refused();
            return Err(CreateError::Full);
        };
        if let (0, Some(place)) = (number, &self.settings(lock).directory) {
            remove_stale_lanes(place);
        }
        let has_ring = contents == LaneContents::Points;
        let bytes = if has_ring {
            RING_LANE_BYTES
        } else {
            (FIRST_LANE_BYTES << number).min(LARGE_LANE_BYTES)
        };
        lane.bytes.store(bytes, Ordering::Relaxed);
        lane.used.store(HEADER_BYTES, Ordering::Relaxed);
        lane.has_ring.store(has_ring, Ordering::Relaxed);
        let has_mpi_state = contents == LaneContents::SeriesAndMpiState;
        lane.has_mpi_state.store(has_mpi_state, Ordering::Relaxed);
        let mapped = lane.create_mapping(self.settings(lock), number);
        lane.set_mapping(&mapped.ok_or(CreateError::Memory)?);
        // Last of all: a child forked before this line does not see the lane.
        self.count.store(number + 1, Ordering::Release);
        Ok(lane)
    }

    fn count_refused(&self) {
        if let Some(lane) = self.lanes().next() {
            lane.header_word(header::REFUSED)
                .fetch_add(1, Ordering::Relaxed);
        }
    }
}
