//! What the C library's allocator is told, so that the agent stays small on nodes with many cores.

/// Buffers of this size and more come from the kernel, and go back to it when they are freed. By itself the
/// allocator learns from each large buffer to keep the next one: after a few heavy questions the agent
/// had 126 MB where 18 MB do.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: libc::c_int = 1 << 20;
/// Heaps that all threads share. By itself the allocator makes up to eight for each core, and what one thread frees in
/// its heap is of no use to the others.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;

pub(crate) fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: this only sets numbers of the allocator, which any thread may do at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}
