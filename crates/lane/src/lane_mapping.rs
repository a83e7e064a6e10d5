//! Creates the memory of one lane: a file that the agent finds, or private memory if that fails.
//!
//! Nothing here allocates or takes a lock: a child of `fork` calls it from within an update.
//!
//! The file is closed again at once. Its lock belongs to the open file description, which the
//! mapping holds: it is released when the last mapping is gone, by the end of the process or by
//! `exec`. So the program holds no descriptor of this library that it could close by mistake.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use crate::writer_directory::WriterDirectory;

/// The memory of a lane, and the file behind it.
#[derive(Debug)]
pub(crate) struct LaneMapping {
    pub base: NonNull<u8>,
    pub bytes: usize,
    /// Whether it is backed by a file that the agent can read.
    pub is_published: bool,
}

/// The two names of the file: 32 hexadecimal digits and a suffix.
pub(crate) struct LaneFileNames {
    temporary: [u8; 37],
    lane: [u8; 38],
}

pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";
pub(crate) const LANE_SUFFIX: &str = ".lane";

impl LaneFileNames {
    pub(crate) fn new(id: [u8; 16]) -> LaneFileNames {
        let mut names = LaneFileNames {
            temporary: [0; 37],
            lane: [0; 38],
        };
        let digits = b"0123456789abcdef";
        for (index, byte) in id.iter().enumerate() {
            let pair = [
                digits[usize::from(byte >> 4)],
                digits[usize::from(byte & 15)],
            ];
            crate::layout::put_bytes(&mut names.temporary, 2 * index, &pair);
            crate::layout::put_bytes(&mut names.lane, 2 * index, &pair);
        }
        crate::layout::put_bytes(&mut names.temporary, 32, TEMPORARY_SUFFIX.as_bytes());
        crate::layout::put_bytes(&mut names.lane, 32, LANE_SUFFIX.as_bytes());
        names
    }

    fn temporary(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.temporary).unwrap_or_default()
    }

    fn lane(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.lane).unwrap_or_default()
    }
}

/// Creates the memory of a lane, filled by `fill` before any other process can find it.
///
/// If the file cannot be created (no space, no directory), the memory is private: the program
/// counts into it and no agent reads it. Returns `None` if there is no memory at all.
pub(crate) fn create_mapping(
    place: Option<&WriterDirectory>,
    id: [u8; 16],
    bytes: usize,
    fill: impl Fn(&mut [u8]),
) -> Option<LaneMapping> {
    if let Some(place) = place
        && let Ok(mapped) = create_lane_file(place, &LaneFileNames::new(id), bytes, &fill)
    {
        return Some(mapped);
    }
    let base = map_private(bytes)?;
    fill(mapping_bytes(base, bytes));
    Some(LaneMapping {
        base,
        bytes,
        is_published: false,
    })
}

fn map_private(bytes: usize) -> Option<NonNull<u8>> {
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let base = unsafe { rustix::mm::mmap_anonymous(null_mut(), bytes, READ_WRITE, flags) };
    NonNull::new(base.ok()?.cast())
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Returns a new mapping as bytes, before it is shared.
fn mapping_bytes<'a>(base: NonNull<u8>, bytes: usize) -> &'a mut [u8] {
    // SAFETY: only called on mappings of `bytes` bytes that the caller has just created; the kernel
    // has zeroed them.
    unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), bytes) }
}

fn create_lane_file(
    place: &WriterDirectory,
    names: &LaneFileNames,
    bytes: usize,
    fill: &impl Fn(&mut [u8]),
) -> Result<LaneMapping, Errno> {
    let (dir, stat) = place.open()?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, names.temporary(), flags, Mode::RUSR | Mode::WUSR)?;
    // In a directory of our own user, the agent is the same user's. Elsewhere it may be any user's,
    // and other users are kept out by the directory, which they cannot list.
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
    let mapped = fill_file(file, is_own, dir.as_fd(), names, bytes, fill);
    if mapped.is_err() {
        let _ = rustix::fs::unlinkat(&dir, names.temporary(), AtFlags::empty());
    }
    mapped
}

fn fill_file(
    file: OwnedFd,
    is_own: bool,
    dir: BorrowedFd<'_>,
    names: &LaneFileNames,
    bytes: usize,
    fill: &impl Fn(&mut [u8]),
) -> Result<LaneMapping, Errno> {
    if !is_own {
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        rustix::fs::fchmod(&file, mode)?;
    }
    // Beyond this limit the kernel not only fails the call but kills the program with SIGXFSZ.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    if limit.current.is_some_and(|limit| limit < bytes as u64) {
        return Err(Errno::FBIG);
    }
    // Allocate everything now: a page that is missing later would kill the program with SIGBUS.
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
    let shared = MapFlags::SHARED;
    // SAFETY: a new mapping at an address that the kernel chooses, of a file that was just
    // extended.
    let base = unsafe { rustix::mm::mmap(null_mut(), bytes, READ_WRITE, shared, &file, 0) }?;
    let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
    fill(mapping_bytes(base, bytes));
    if let Err(error) = rustix::fs::renameat(dir, names.temporary(), dir, names.lane()) {
        // SAFETY: the mapping was created above and was not shared.
        let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
        return Err(error);
    }
    Ok(LaneMapping {
        base,
        bytes,
        is_published: true,
    })
}

impl LaneMapping {
    /// Moves this memory to the address of a mapping of the same size, which is replaced.
    ///
    /// # Safety
    ///
    /// `at` must be a mapping of `self.bytes` bytes that belongs to the caller, and there must be
    /// no plain references into it.
    // SAFETY: upheld by the caller, see above.
    pub(crate) unsafe fn move_to(self, at: NonNull<u8>) -> Option<LaneMapping> {
        // SAFETY: both ranges are mappings of this size and owned by the caller.
        let moved = unsafe {
            rustix::mm::mremap_fixed(
                self.base.as_ptr().cast(),
                self.bytes,
                self.bytes,
                MremapFlags::MAYMOVE,
                at.as_ptr().cast(),
            )
        };
        moved.ok()?;
        Some(LaneMapping { base: at, ..self })
    }
}
