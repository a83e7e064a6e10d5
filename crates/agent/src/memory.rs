/// Buffers of this size and more come from the kernel, and go back to it when they are freed.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 1 << 20;

/// Makes the C library give the memory of large answers back. By itself it learns from each large buffer to
/// keep the next one: after a few heavy questions the agent had 126 MB where 18 MB do.
pub(crate) fn give_back_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: this only sets a number of the allocator, which any thread may do at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}
