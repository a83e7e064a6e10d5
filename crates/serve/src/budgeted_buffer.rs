//! Buffers for request bodies and responses. A buffer reserves from a shared budget as it grows;
//! the memory is released with the last reference to its bytes, so that clients cannot make the
//! agent exceed the budget.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::guard::AccessRights;

/// Granularity of a budget, in bytes per semaphore permit.
const PERMIT_BYTES: usize = 1024;
/// A buffer doubles up to this size and then grows by it: further doubling could take twice the
/// memory needed.
const GROWTH_BYTES_MAX: usize = 1 << 20;
/// The memory of decompressed bodies is a multiple of this.
const SPARE_STEP_BYTES: usize = 64 << 10;
/// Buffers up to this size are small.
const SMALL_BYTES: usize = 256 << 10;

/// Memory that buffers share. Clones share it, too. Clients other than the agent's user and root
/// may use three quarters of it, so that the rest is free for these two whatever others leave
/// unread or unfinished.
#[derive(Debug, Clone)]
pub(crate) struct BufferMemoryBudget {
    permits: usize,
    all: Arc<Semaphore>,
    /// The part of `all` that large buffers may use.
    large: Arc<Semaphore>,
    /// The part of `all` that clients other than the agent's user and root may use.
    guests: Arc<Semaphore>,
    /// The part of `guests` that their large buffers may use.
    large_of_guests: Arc<Semaphore>,
}

impl BufferMemoryBudget {
    pub(crate) fn new(bytes: usize) -> BufferMemoryBudget {
        let permits = bytes.div_ceil(PERMIT_BYTES).min(Semaphore::MAX_PERMITS);
        BufferMemoryBudget {
            permits,
            all: Arc::new(Semaphore::new(permits)),
            large: Arc::new(Semaphore::new(permits)),
            guests: Arc::new(Semaphore::new(permits.div_ceil(4) * 3)),
            large_of_guests: Arc::new(Semaphore::new(permits)),
        }
    }

    /// Reserves an eighth for small buffers, which then find room even if large ones stay in use.
    pub(crate) fn with_share_for_small(bytes: usize) -> BufferMemoryBudget {
        let mut budget = BufferMemoryBudget::new(bytes);
        budget.large = Arc::new(Semaphore::new(budget.permits / 8 * 7));
        budget.large_of_guests = Arc::new(Semaphore::new(budget.permits / 8 * 5));
        budget
    }

    /// Bytes in use at this moment, rounded up for each buffer.
    pub(crate) fn bytes_in_use(&self) -> usize {
        let free = self.all.available_permits();
        self.permits.saturating_sub(free) * PERMIT_BYTES
    }

    /// An empty buffer for up to `bytes_max` bytes, from the part that these rights may use.
    pub(crate) fn buffer(&self, bytes_max: usize, rights: AccessRights) -> BudgetedBuffer {
        BudgetedBuffer {
            bytes: Vec::new(),
            bytes_max,
            rights,
            budget: self.clone(),
            permits: Vec::new(),
            reserved: 0,
        }
    }
}

/// A buffer that grows within a budget. Writing fails with [`io::ErrorKind::FileTooLarge`] beyond
/// its largest size, and with [`io::ErrorKind::OutOfMemory`] if other buffers use the budget.
#[derive(Debug)]
pub(crate) struct BudgetedBuffer {
    bytes: Vec<u8>,
    bytes_max: usize,
    rights: AccessRights,
    budget: BufferMemoryBudget,
    /// Those of buffers beyond [`SMALL_BYTES`] count in `all` and in `large`, those of guests also
    /// in the parts for guests.
    permits: Vec<OwnedSemaphorePermit>,
    reserved: usize,
}

/// The bytes of a complete buffer. Its permits are released with the last reference.
struct BudgetedBytes {
    bytes: Vec<u8>,
    _permits: Vec<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BudgetedBuffer {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// An empty buffer with the same limits.
    pub(crate) fn new_empty(&self) -> BudgetedBuffer {
        self.budget.buffer(self.bytes_max, self.rights)
    }

    /// Takes over bytes that were built elsewhere, unless they are too large.
    pub(crate) fn adopt(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if bytes.len() > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.reserve(bytes.capacity())?;
        self.bytes = bytes;
        Ok(())
    }

    /// Replaces the contents by `len` bytes that `write` fills in. The memory is that of `spare`,
    /// if that is enough.
    pub(crate) fn fill(
        &mut self,
        mut spare: Vec<u8>,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if len > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if spare.capacity() < len {
            // A little more, so that it is enough for a later body of nearly the same size.
            let capacity = len.next_multiple_of(SPARE_STEP_BYTES).min(self.bytes_max);
            spare = Vec::with_capacity(capacity);
        }
        self.reserve(spare.capacity())?;
        spare.resize(len, 0);
        self.bytes = spare;
        write(&mut self.bytes)
    }

    /// Removes what follows the first `len` bytes; the memory stays reserved.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Takes the contents; the reserved memory stays reserved.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(BudgetedBytes {
            bytes: self.bytes,
            _permits: self.permits,
        })
    }

    fn grow(&mut self, capacity: usize) -> io::Result<()> {
        self.reserve(capacity)?;
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    /// Reserves what is missing for this capacity.
    fn reserve(&mut self, capacity: usize) -> io::Result<()> {
        let wanted = capacity.div_ceil(PERMIT_BYTES).max(self.reserved);
        // A buffer that becomes large no longer takes room from the small ones.
        let large = |permits: usize| {
            if permits > SMALL_BYTES / PERMIT_BYTES {
                permits
            } else {
                0
            }
        };
        let acquire = |permits: &Arc<Semaphore>, more: usize| {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            let acquired = permits.clone().try_acquire_many_owned(more);
            acquired.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
        };
        let of_guests = |permits: usize| match self.rights {
            AccessRights::None | AccessRights::User => permits,
            AccessRights::Owner => 0,
        };
        let more = wanted - self.reserved;
        let more_large = large(wanted) - large(self.reserved);
        let permits = [
            acquire(&self.budget.guests, of_guests(more))?,
            acquire(&self.budget.large_of_guests, of_guests(more_large))?,
            acquire(&self.budget.large, more_large)?,
            acquire(&self.budget.all, more)?,
        ];
        self.permits.extend(permits);
        self.reserved = wanted;
        Ok(())
    }
}

impl io::Write for BudgetedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = self.bytes.len() + bytes.len();
        if wanted > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let capacity = self.bytes.capacity();
        if wanted > capacity {
            let growth = capacity.clamp(PERMIT_BYTES, GROWTH_BYTES_MAX);
            let roomy = (capacity + growth).min(self.bytes_max).max(wanted);
            // If the budget has no room for that, take only what is needed.
            self.grow(roomy).or_else(|_| self.grow(wanted))?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn fits(budget: &BufferMemoryBudget, bytes: usize) -> bool {
        fits_for(AccessRights::Owner, budget, bytes)
    }

    fn fits_for(rights: AccessRights, budget: &BufferMemoryBudget, bytes: usize) -> bool {
        match budget.buffer(8 << 20, rights).write_all(&vec![0; bytes]) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
                false
            }
        }
    }

    #[test]
    fn memory_is_given_back_when_the_last_byte_is_gone() {
        let budget = BufferMemoryBudget::new(8 << 10);
        let mut first = budget.buffer(1 << 20, AccessRights::Owner);
        first.write_all(&[0; 6 << 10]).expect("room");
        assert_eq!(budget.bytes_in_use(), 6 << 10);
        assert!(!fits(&budget, 6 << 10), "while it is made");
        let first = first.into_bytes();
        let slice = first.slice(10..20);
        drop(first);
        assert!(!fits(&budget, 6 << 10), "while it is read");
        assert!(fits(&budget, 2 << 10), "the rest");
        drop(slice);
        assert_eq!(budget.bytes_in_use(), 0);
        assert!(fits(&budget, 8 << 10));
    }

    #[test]
    fn large_buffers_leave_room_for_small_ones() {
        let budget = BufferMemoryBudget::with_share_for_small(8 << 20);
        let mut large = budget.buffer(8 << 20, AccessRights::Owner);
        large.write_all(&[0; 13 << 19]).expect("room");
        assert!(!fits(&budget, 5 << 18));
        assert!(fits(&budget, 1));
        drop(large);
        assert!(fits(&budget, 5 << 18));
    }

    #[test]
    fn guests_leave_memory_to_the_agents_user_and_root() {
        for (budget, has_share_for_small) in [
            (BufferMemoryBudget::new(8 << 20), false),
            (BufferMemoryBudget::with_share_for_small(8 << 20), true),
        ] {
            for guest in [AccessRights::None, AccessRights::User] {
                let mut held = Vec::new();
                for _ in 0..100 {
                    let mut buffer = budget.buffer(1 << 20, guest);
                    let _ = buffer.write_all(&[0; 1 << 20]);
                    held.push(buffer);
                }
                assert!(!fits_for(AccessRights::User, &budget, 512 << 10));
                let small = fits_for(AccessRights::User, &budget, 64 << 10);
                assert_eq!(small, has_share_for_small);
                assert!(fits(&budget, 2 << 20), "the rest is for the owner");
            }
            assert_eq!(budget.bytes_in_use(), 0);
        }
    }

    #[test]
    fn a_buffer_stops_at_its_largest_size() {
        let mut buffer = BufferMemoryBudget::new(1 << 20).buffer(10, AccessRights::Owner);
        buffer.write_all(b"123456789").expect("room");
        let error = buffer.write_all(b"ab").expect_err("too large");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(buffer.into_bytes(), b"123456789"[..]);
    }
}
