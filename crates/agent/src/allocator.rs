//! Tunes the C library's allocator, so that the agent stays small on nodes with many cores.

/// Buffers of this size and more are mapped directly, and returned to the kernel when freed. By
/// default, the allocator raises this threshold with each large buffer that is freed: after a few
/// expensive queries the agent held 126 MB where 18 MB suffice.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: libc::c_int = 1 << 20;
/// Free memory of this size at the end of an arena is returned to the kernel. By default it is an
/// eighth of that: the buffers of each large request then were memory that the kernel had to clear.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD_BYTES: libc::c_int = 1 << 20;
/// Number of arenas, shared by all threads. By default, the allocator creates up to eight per core,
/// and memory that is freed in one arena is not available to the others.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;

pub(crate) fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` only sets parameters of the allocator; any thread may call it at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}
