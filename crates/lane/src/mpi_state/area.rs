//! The area as its writer sees it: references to words in shared memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

use super::{
    AREA_BYTES, COMMS_AT, COMMS_MAX, FUNCTIONS_AT, FUNCTIONS_MAX, MAGIC, MpiPhase, NAME_BYTES_MAX,
    THREADS_AT, THREADS_MAX, VERSION, comm, head, thread,
};
use crate::layout::LINE_BYTES;

/// The words of a thread.
pub type ThreadEntry = [AtomicU64; 8];
/// The words of a communicator.
pub type CommEntry = [AtomicU64; 8];

/// The MPI state of this process.
#[derive(Debug, Clone, Copy)]
pub struct MpiStateArea(NonNull<u8>);

// SAFETY: it points to memory that stays mapped and is accessed only through atomics.
unsafe impl Send for MpiStateArea {}
// SAFETY: as above.
unsafe impl Sync for MpiStateArea {}

impl MpiStateArea {
    /// # Safety
    ///
    /// `at` must be zeroed memory of [`AREA_BYTES`] bytes, aligned to a cache line, that stays
    /// mapped and is accessed through atomics only.
    // SAFETY: upheld by the caller, see above.
    pub(crate) unsafe fn new(at: NonNull<u8>) -> MpiStateArea {
        MpiStateArea(at)
    }

    /// Returns an area in private memory, which is not read from outside. It is never freed.
    pub fn private() -> MpiStateArea {
        #[repr(C, align(64))]
        struct Memory([u64; AREA_BYTES / 8]);
        let memory = Box::leak(Box::new(Memory([0; AREA_BYTES / 8])));
        MpiStateArea(NonNull::from(memory).cast())
    }

    fn word(&self, offset: usize, index: usize) -> &'static AtomicU64 {
        let at = (offset + 8 * index).min(AREA_BYTES - 8);
        // SAFETY: within the area, aligned, and only accessed as an atomic.
        unsafe { self.0.add(at).cast().as_ref() }
    }

    fn head(&self, index: usize) -> &'static AtomicU64 {
        self.word(0, index)
    }

    /// Marks the area as valid. `launch` is the same for all processes of one start of the program,
    /// or 0.
    pub fn begin(&self, library: u32, launch: u64, parent_pid: u32) {
        self.head(head::PHASE).store(u64::from(library), Relaxed);
        self.head(head::LAUNCH).store(launch, Relaxed);
        self.head(head::PARENT)
            .store(u64::from(parent_pid), Relaxed);
        let mut magic = [0; 8];
        magic[..4].copy_from_slice(&MAGIC);
        magic[4..].copy_from_slice(&VERSION.to_le_bytes());
        self.head(head::MAGIC)
            .store(u64::from_ne_bytes(magic), Release);
    }

    pub fn set_phase(&self, phase: MpiPhase) {
        let word = self.head(head::PHASE);
        let library = word.load(Relaxed) & 0xffff_ffff;
        word.store(library | (phase as u64) << 32, Relaxed);
    }

    pub fn set_world(&self, rank: u32, size: u32) {
        let word = u64::from(rank) | u64::from(size) << 32;
        self.head(head::RANK).store(word, Relaxed);
    }

    /// Stores how ticks are converted to monotonic time: a rate of 0 is not known yet.
    pub fn set_clock(&self, ticks: u64, nanos: u64, rate: u64) {
        self.head(head::CLOCK_TICKS).store(ticks, Relaxed);
        self.head(head::CLOCK_NANOS).store(nanos, Relaxed);
        self.head(head::CLOCK_RATE).store(rate, Relaxed);
    }

    pub fn count_untracked_comm(&self) {
        self.head(head::UNTRACKED).fetch_add(1, Relaxed);
    }

    /// Stores the name of a function. Longer names are cut; those beyond the table are left out.
    pub fn set_function(&self, index: usize, name: &str) {
        if index >= FUNCTIONS_MAX {
            return;
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        let length = name.len().min(NAME_BYTES_MAX);
        bytes[..length].copy_from_slice(name.as_bytes().get(..length).unwrap_or_default());
        for (at, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.word(FUNCTIONS_AT + index * NAME_BYTES_MAX, at)
                .store(u64::from_ne_bytes(*chunk), Relaxed);
        }
    }

    pub fn threads(&self) -> &'static [ThreadEntry; THREADS_MAX] {
        // SAFETY: within the area and aligned; atomics, for which all bit patterns are valid.
        unsafe { self.0.add(THREADS_AT).cast().as_ref() }
    }

    pub fn comms(&self) -> &'static [CommEntry; COMMS_MAX] {
        // SAFETY: as above.
        unsafe { self.0.add(COMMS_AT).cast().as_ref() }
    }

    /// Returns an entry for the calling thread, with its id: that of a thread that has ended, if
    /// all are taken. The last entry is shared by all threads for which there is none.
    pub fn claim_thread(&self, id: u32) -> &'static ThreadEntry {
        let entries = self.threads();
        let take = |entry: &'static ThreadEntry, from: u64| {
            let taken = entry[thread::ID].compare_exchange(from, u64::from(id), Release, Relaxed);
            taken.is_ok().then_some(entry)
        };
        let is_gone = |other: u64| {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            // SAFETY: signal 0 only checks whether the thread exists.
            let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, other as libc::pid_t, 0) };
            sent == -1
        };
        let unused = entries.iter().find_map(|entry| take(entry, 0));
        let of_ended = || {
            let mut others = entries.iter().filter_map(|entry| {
                let other = entry[thread::ID].load(Relaxed);
                is_gone(other).then(|| take(entry, other)).flatten()
            });
            others.next()
        };
        unused
            .or_else(of_ended)
            .unwrap_or(&entries[THREADS_MAX - 1])
    }

    /// Returns a copy of the area.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let word = |index| self.word(0, index).load(Relaxed).to_ne_bytes();
        (0..AREA_BYTES / 8).flat_map(word).collect()
    }

    /// Removes a communicator that was freed.
    pub fn clear_comm(&self, index: usize) {
        if let Some(entry) = self.comms().get(index) {
            entry[comm::FLAGS].store(0, Release);
        }
    }
}

const _: () = assert!(LINE_BYTES == size_of::<ThreadEntry>());
