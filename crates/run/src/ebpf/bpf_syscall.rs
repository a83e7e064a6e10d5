//! The system call bpf(2), one function for each command in use.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const PROGRAM_LOAD: i32 = 5;
const TRACEPOINT_OPEN: i32 = 17;
const BTF_LOAD: i32 = 18;

const HASH: u32 = 1;
const ARRAY_PER_PROCESSOR: u32 = 6;
const HASH_OF_MAPS: u32 = 13;
const TASK_STORAGE: u32 = 29;
const NO_PREALLOCATION: u32 = 1;
const TRACING_PROGRAM: u32 = 26;
const AT_TRACEPOINT: u32 = 23;

/// The argument of bpf(2), `union bpf_attr`: fields at fixed offsets, the rest zero.
struct BpfAttributes([u8; 152]);

impl BpfAttributes {
    fn new() -> BpfAttributes {
        BpfAttributes([0; 152])
    }

    fn word(mut self, at: usize, word: u32) -> BpfAttributes {
        self.0[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        self
    }

    fn address<T>(mut self, at: usize, address: *const T) -> BpfAttributes {
        let address = address.expose_provenance() as u64;
        self.0[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }

    fn descriptor(self, at: usize, descriptor: &impl AsRawFd) -> BpfAttributes {
        self.word(at, descriptor.as_raw_fd().cast_unsigned())
    }

    fn call(&self, command: i32) -> io::Result<i32> {
        // SAFETY: the length is that of the structure; callers pass addresses of memory that lives
        // through the call and is as large as the command requires.
        match unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) } {
            -1 => Err(io::Error::last_os_error()),
            result => Ok(result as i32),
        }
    }

    fn open(&self, command: i32) -> io::Result<OwnedFd> {
        let descriptor = self.call(command)?;
        // SAFETY: a new descriptor without another owner.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

fn map_attributes(kind: u32, value_bytes: usize, count: u32) -> BpfAttributes {
    BpfAttributes::new()
        .word(0, kind)
        .word(4, 4)
        .word(8, value_bytes as u32)
        .word(12, count)
}

/// Creates a hash map of up to `count` values with 32-bit keys.
pub(super) fn create_hash(value_bytes: usize, count: u32) -> io::Result<OwnedFd> {
    map_attributes(HASH, value_bytes, count).open(MAP_CREATE)
}

/// Creates a per-processor array with one value.
pub(super) fn create_table(value_bytes: usize) -> io::Result<OwnedFd> {
    map_attributes(ARRAY_PER_PROCESSOR, value_bytes, 1).open(MAP_CREATE)
}

/// Creates a hash map of up to `count` maps of the same kind as `map`.
pub(super) fn create_hash_of(map: &OwnedFd, count: u32) -> io::Result<OwnedFd> {
    map_attributes(HASH_OF_MAPS, 4, count)
        .descriptor(20, map)
        .open(MAP_CREATE)
}

/// Creates a task storage map: one value per watched task, freed with the task.
pub(super) fn create_task_storage(btf: &OwnedFd, value_bytes: usize) -> io::Result<OwnedFd> {
    BpfAttributes::new()
        .word(0, TASK_STORAGE)
        .word(4, 4)
        .word(8, value_bytes as u32)
        .word(16, NO_PREALLOCATION)
        .descriptor(48, btf)
        .word(52, 1)
        .word(56, 3)
        .open(MAP_CREATE)
}

pub(super) fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    BpfAttributes::new()
        .address(0, btf.as_ptr())
        .word(16, btf.len() as u32)
        .open(BTF_LOAD)
}

/// Loads a program for a tracepoint, after the kernel has verified it.
pub(super) fn load_program(code: &[u64], tracepoint: u32) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    BpfAttributes::new()
        .word(0, TRACING_PROGRAM)
        .word(4, code.len() as u32)
        .address(8, code.as_ptr())
        .address(16, license.as_ptr())
        .word(68, AT_TRACEPOINT)
        .word(108, tracepoint)
        .open(PROGRAM_LOAD)
}

/// Returns the verifier's log for a program.
#[cfg(test)]
pub(super) fn explain_program(code: &[u64], tracepoint: u32) -> String {
    let license = c"Dual MIT/GPL";
    let mut log = vec![0_u8; 1 << 20];
    let _ = BpfAttributes::new()
        .word(0, TRACING_PROGRAM)
        .word(4, code.len() as u32)
        .address(8, code.as_ptr())
        .address(16, license.as_ptr())
        .word(24, 1)
        .word(28, log.len() as u32)
        .address(32, log.as_mut_ptr())
        .word(68, AT_TRACEPOINT)
        .word(108, tracepoint)
        .open(PROGRAM_LOAD);
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&log[..end]).into_owned()
}

/// Attaches a program to its tracepoint until the returned descriptor is closed.
pub(super) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    BpfAttributes::new()
        .descriptor(8, program)
        .open(TRACEPOINT_OPEN)
}

/// Reads the value of a key; for a per-processor map, the values of all processors.
pub(super) fn lookup(map: &OwnedFd, key: u32, value: &mut [u64]) -> io::Result<()> {
    let key = &raw const key;
    let attributes = BpfAttributes::new()
        .descriptor(0, map)
        .address(8, key)
        .address(16, value.as_mut_ptr());
    attributes.call(MAP_LOOKUP).map(drop)
}

/// Sets the value of a key.
pub(super) fn update(map: &OwnedFd, key: u32, value: &[u64]) -> io::Result<()> {
    update_at(map, &key, value.as_ptr())
}

/// Sets the map of a key in a map of maps.
pub(super) fn update_map(maps: &OwnedFd, key: u32, map: &OwnedFd) -> io::Result<()> {
    let descriptor = map.as_raw_fd();
    update_at(maps, &key, &raw const descriptor)
}

/// Deletes a key.
pub(super) fn delete(map: &OwnedFd, key: u32) -> io::Result<()> {
    let attributes = BpfAttributes::new()
        .descriptor(0, map)
        .address(8, &raw const key);
    attributes.call(MAP_DELETE).map(drop)
}

/// Inserts the value of a task; EEXIST if it has one.
pub(super) fn insert_task(map: &OwnedFd, task: BorrowedFd<'_>, value: &[u64]) -> io::Result<()> {
    const ONLY_NEW: u32 = 1;
    let key = task.as_raw_fd();
    let attributes = BpfAttributes::new()
        .descriptor(0, map)
        .address(8, &raw const key)
        .address(16, value.as_ptr())
        .word(24, ONLY_NEW);
    attributes.call(MAP_UPDATE).map(drop)
}

fn update_at<T>(map: &OwnedFd, key: &u32, value: *const T) -> io::Result<()> {
    let attributes = BpfAttributes::new()
        .descriptor(0, map)
        .address(8, &raw const *key)
        .address(16, value);
    attributes.call(MAP_UPDATE).map(drop)
}
