//! The lanes of this process: made when the first series is, and made anew in a child of `fork`.

use std::cell::UnsafeCell;
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::rand::GetRandomFlags;

use crate::file::{self, Mapped};
use crate::gate::{Gate, Locked};
use crate::identity::{self, ProcessId};
use crate::layout::{
    self, FIRST_LANE_BYTES, HEADER_BYTES, Kind, LARGE_LANE_BYTES, RING_LANE_BYTES, RING_OFFSET,
    RING_POINTS, entry, header, put,
};
use crate::place::{self, Place, Trust};
use crate::spec::{CreateError, Description, Spec};

/// How many lanes one process may have: room for some 60,000 counters.
const LANES_MAX: usize = 16;

/// Everything that a process writes to. There is one for the whole process, [`home`].
#[derive(Debug)]
pub struct Home {
    gate: Gate,
    /// Touched only under the gate's lock.
    settings: UnsafeCell<Settings>,
    /// Lanes are added one by one and never go away, so that their memory can be pointed at.
    count: AtomicUsize,
    lanes: [Lane; LANES_MAX],
}

// SAFETY: `settings` is only touched under the lock of `gate`; all else is atomic.
unsafe impl Sync for Home {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Home {}

#[derive(Debug)]
struct Settings {
    source: Source,
    /// Where lanes go; None: nowhere, so that they are private memory.
    place: Option<Place>,
    /// The parts of the header that stay the same for all lanes, also those of children.
    template: [u8; HEADER_BYTES],
}

#[derive(Debug)]
enum Source {
    Environment,
    Directory(PathBuf),
    /// `place` and `template` are filled in.
    Settled,
    Disabled,
}

/// One lane's memory.
#[derive(Debug)]
struct Lane {
    base: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// What is published, as this process knows it: the file itself may be scribbled over.
    used: AtomicUsize,
    has_ring: AtomicBool,
    is_published: AtomicBool,
}

/// Where a series stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    /// The start of the lane.
    pub base: NonNull<u8>,
    /// The series' description, from the start.
    pub entry: usize,
    /// Its slot, from the start.
    pub slot: usize,
}

/// The one of this process.
pub fn home() -> &'static Home {
    static HOME: Home = Home::new(Source::Environment);
    &HOME
}

impl Home {
    const fn new(source: Source) -> Home {
        Home {
            gate: Gate::new(),
            settings: UnsafeCell::new(Settings {
                source,
                place: None,
                template: [0; HEADER_BYTES],
            }),
            count: AtomicUsize::new(0),
            lanes: [const { Lane::new() }; LANES_MAX],
        }
    }

    /// A further one in a directory of one's own, for tests and benches; it stays until the process ends.
    pub fn in_directory(path: impl Into<PathBuf>) -> &'static Home {
        Box::leak(Box::new(Home::new(Source::Directory(path.into()))))
    }

    /// Whether an agent can see what is counted here.
    pub fn is_published(&self) -> bool {
        let Some(_lock) = self.gate.lock() else {
            return false;
        };
        let mut lanes = self.lanes();
        lanes
            .next()
            .is_some_and(|lane| lane.is_published.load(Ordering::Relaxed))
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().take(self.count.load(Ordering::Acquire))
    }

    /// Whether slots may be written. In a child of `fork` the first call makes its lanes.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.gate.is_open() || self.reopen()
    }

    #[cold]
    fn reopen(&self) -> bool {
        match self.gate.lock() {
            Some(lock) => self.gate.is_open() || self.make_ready(&lock).is_ok(),
            None => false,
        }
    }

    /// Makes a series, or finds the one that is there already.
    pub(crate) fn create(&self, spec: &Spec<'_>) -> Result<Made, CreateError> {
        let description = Description::new(spec)?;
        let lock = self.gate.lock().ok_or(CreateError::Memory)?;
        if !self.gate.is_open() {
            self.make_ready(&lock)?;
        }
        if let Some(made) = self.lanes().find_map(|lane| lane.find(&description)) {
            return Ok(made);
        }
        let wants_ring = spec.kind == Kind::Point;
        for lane in self.lanes() {
            if lane.has_ring.load(Ordering::Relaxed) == wants_ring
                && let Some(made) = lane.append(&description)
            {
                return Ok(made);
            }
        }
        let made = self.add_lane(&lock, wants_ring)?.append(&description);
        made.ok_or(CreateError::Full)
    }

    /// Reads the environment the first time; in a child, gives it lanes of its own.
    fn make_ready(&self, lock: &Locked<'_>) -> Result<(), CreateError> {
        let settings = self.settings(lock);
        settings.settle()?;
        for (number, lane) in self.lanes().enumerate() {
            lane.make_anew(settings, number)
                .ok_or(CreateError::Memory)?;
        }
        lock.open();
        Ok(())
    }

    #[allow(clippy::mut_from_ref)] // The lock is what makes it exclusive.
    fn settings<'a>(&self, _: &'a Locked<'_>) -> &'a mut Settings {
        // SAFETY: the caller holds the lock, and keeps no other reference while it holds this one.
        unsafe { &mut *self.settings.get() }
    }

    fn add_lane(&self, lock: &Locked<'_>, has_ring: bool) -> Result<&Lane, CreateError> {
        let number = self.count.load(Ordering::Relaxed);
        let Some(lane) = self.lanes.get(number) else {
            self.count_refused();
            return Err(CreateError::Full);
        };
        let bytes = match has_ring {
            true => RING_LANE_BYTES,
            false => (FIRST_LANE_BYTES << number).min(LARGE_LANE_BYTES),
        };
        lane.bytes.store(bytes, Ordering::Relaxed);
        lane.used.store(HEADER_BYTES, Ordering::Relaxed);
        lane.has_ring.store(has_ring, Ordering::Relaxed);
        let mapped = lane.make(self.settings(lock), number);
        lane.keep(&mapped.ok_or(CreateError::Memory)?);
        // Last of all: a child that is made before this line does not see the lane.
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

impl Settings {
    fn settle(&mut self) -> Result<(), CreateError> {
        let place = match &self.source {
            Source::Settled => return Ok(()),
            Source::Environment if place::is_disabled() => {
                self.source = Source::Disabled;
                return Err(CreateError::Disabled);
            }
            Source::Disabled => return Err(CreateError::Disabled),
            Source::Environment => Place::find(),
            Source::Directory(path) => Place::new(path.clone(), Trust::Named),
        };
        self.place = place;
        self.fill_template();
        self.source = Source::Settled;
        Ok(())
    }

    fn fill_template(&mut self) {
        let template = &mut self.template;
        put(template, header::MAGIC, &layout::MAGIC);
        put(template, header::VERSION, &layout::VERSION.to_le_bytes());
        put(
            template,
            header::HEADER_BYTES,
            &(HEADER_BYTES as u32).to_le_bytes(),
        );
        let mut command = [0; 64];
        let command = identity::command(&mut command);
        put_text(template, header::COMMAND, header::COMMAND_BYTES, command);
        let rank = identity::rank().unwrap_or_default();
        put_text(template, header::RANK, header::RANK_BYTES, rank.as_bytes());
        let job = identity::job_id().unwrap_or_default();
        put_text(template, header::JOB, header::JOB_BYTES, job.as_bytes());
    }

    /// The header of one lane of this process.
    fn fill_header(&self, memory: &mut [u8], id: [u8; 16], number: usize, lane: &Lane) {
        put(memory, 0, &self.template);
        let process = ProcessId::of_self();
        let uid = rustix::process::geteuid().as_raw();
        let now = crate::clock::now_ms();
        put(memory, header::ID, &id);
        put(memory, header::PID, &process.pid.to_le_bytes());
        put(memory, header::UID, &uid.to_le_bytes());
        put(
            memory,
            header::START_TICKS,
            &process.start_ticks.to_le_bytes(),
        );
        put(memory, header::PID_SPACE, &process.pid_space.to_le_bytes());
        put(memory, header::CREATED_MS, &now.to_le_bytes());
        let bytes = lane.bytes.load(Ordering::Relaxed) as u32;
        put(memory, header::FILE_BYTES, &bytes.to_le_bytes());
        if lane.has_ring.load(Ordering::Relaxed) {
            put(
                memory,
                header::RING_OFFSET,
                &(RING_OFFSET as u32).to_le_bytes(),
            );
            put(
                memory,
                header::RING_POINTS,
                &(RING_POINTS as u32).to_le_bytes(),
            );
        }
        put(memory, header::NUMBER, &(number as u32).to_le_bytes());
        let used = lane.used.load(Ordering::Relaxed) as u64;
        put(memory, header::PUBLISHED, &used.to_le_bytes());
    }
}

/// As much of a text as fits before a zero byte, and whole characters only.
fn put_text(bytes: &mut [u8], at: usize, space: usize, text: &[u8]) {
    let mut end = text.len().min(space - 1);
    while end > 0 && end < text.len() && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    put(bytes, at, text.get(..end).unwrap_or_default());
}

impl Lane {
    const fn new() -> Lane {
        Lane {
            base: AtomicPtr::new(null_mut()),
            bytes: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            has_ring: AtomicBool::new(false),
            is_published: AtomicBool::new(false),
        }
    }

    /// New memory for this lane, with the descriptions that it has so far and slots at zero.
    fn make(&self, settings: &Settings, number: usize) -> Option<Mapped> {
        let mut id = [0; 16];
        let random = rustix::rand::getrandom(&mut id, GetRandomFlags::NONBLOCK);
        // Without an identity of its own nobody could tell it from others.
        let place = settings.place.as_ref().filter(|_| random == Ok(id.len()));
        let bytes = self.bytes.load(Ordering::Relaxed);
        file::make(place, id, bytes, |memory| {
            settings.fill_header(memory, id, number, self);
            self.for_each_entry(|at, description| {
                put(memory, at, description);
                true
            });
        })
    }

    /// In a child: the same series at the same addresses, in memory that the parent does not share.
    fn make_anew(&self, settings: &Settings, number: usize) -> Option<()> {
        let base = NonNull::new(self.base.load(Ordering::Relaxed))?;
        let fresh = self.make(settings, number)?;
        // SAFETY: `base` is the mapping of this lane, of the same size, and the gate is closed: no
        // thread of this process holds a reference into it.
        self.keep(&unsafe { fresh.move_to(base) }?);
        Some(())
    }

    fn keep(&self, mapped: &Mapped) {
        self.is_published
            .store(mapped.is_published, Ordering::Relaxed);
        self.base.store(mapped.base.as_ptr(), Ordering::Relaxed);
    }

    /// Calls `each` with the offset and the description of every series, until it returns false.
    fn for_each_entry(&self, mut each: impl FnMut(usize, &[u8]) -> bool) {
        let Some(base) = NonNull::new(self.base.load(Ordering::Relaxed)) else {
            return;
        };
        let used = self.used.load(Ordering::Relaxed);
        let mut at = HEADER_BYTES;
        while at + entry::TEXT <= used {
            // SAFETY: within the mapping, because `used` is; a description does not change once it is
            // there.
            let start = unsafe { std::slice::from_raw_parts(base.as_ptr().add(at), entry::TEXT) };
            let length = layout::u32_at(start, entry::BYTES).unwrap_or(0) as usize;
            let slot = layout::u32_at(start, entry::SLOT).unwrap_or(0) as usize;
            if slot < entry::TEXT || slot > length || length > used - at {
                return;
            }
            // SAFETY: as above; the slot behind it, which does change, is left out.
            let description = unsafe { std::slice::from_raw_parts(base.as_ptr().add(at), slot) };
            if !each(at, description) {
                return;
            }
            at += length;
        }
    }

    fn find(&self, description: &Description) -> Option<Made> {
        let base = NonNull::new(self.base.load(Ordering::Relaxed))?;
        let mut found = None;
        self.for_each_entry(|at, there| {
            if description.is_same(there) {
                found = Some(Made {
                    base,
                    entry: at,
                    slot: at + there.len(),
                });
            }
            found.is_none()
        });
        found
    }

    /// Adds a series behind the others; None when there is no room.
    fn append(&self, description: &Description) -> Option<Made> {
        let base = NonNull::new(self.base.load(Ordering::Relaxed))?;
        let at = self.used.load(Ordering::Relaxed);
        let end = at + description.entry_bytes;
        let room = match self.has_ring.load(Ordering::Relaxed) {
            true => RING_OFFSET,
            false => self.bytes.load(Ordering::Relaxed),
        };
        if end > room {
            return None;
        }
        let bytes = description.bytes();
        // SAFETY: the range is within the mapping and not yet published, so that nobody else touches it.
        let memory = unsafe { std::slice::from_raw_parts_mut(base.as_ptr().add(at), bytes.len()) };
        put(memory, 0, bytes);
        put(memory, entry::OFFSET, &(at as u32).to_le_bytes());
        self.header_word(header::PUBLISHED)
            .store(end as u64, Ordering::Release);
        self.used.store(end, Ordering::Release);
        Some(Made {
            base,
            entry: at,
            slot: at + description.slot(),
        })
    }

    /// A word of the header that changes while others read it.
    fn header_word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: only called on lanes with memory; the offset is one of the header's, and aligned.
        unsafe { &*self.base.load(Ordering::Relaxed).add(offset).cast() }
    }
}
