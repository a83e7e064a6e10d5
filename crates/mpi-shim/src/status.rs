//! Reads the number of received bytes from an `MPI_Status`.

use std::mem::MaybeUninit;

use crate::family::MpiFamily;
use crate::mpi_queries;

/// Uninitialised memory for a status of any family, with sufficient alignment.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct MpiStatus(MaybeUninit<[u8; 64]>);

impl MpiStatus {
    #[inline]
    pub(crate) const fn new() -> MpiStatus {
        MpiStatus(MaybeUninit::uninit())
    }

    #[inline]
    pub(crate) fn address(&mut self) -> usize {
        self.0.as_mut_ptr() as usize
    }
}

/// Returns the number of received bytes.
///
/// # Safety
///
/// `status` must be the address of a status that a library of this family filled in.
// SAFETY: upheld by the caller, see above.
#[inline(always)]
pub(crate) unsafe fn received(family: MpiFamily, status: usize, datatype: usize) -> u64 {
    let words = status as *const u32;
    match family {
        // Source, tag, error, cancelled, then the bytes as a `size_t`.
        // SAFETY: upheld by the caller.
        MpiFamily::OpenMpi => unsafe { *words.add(4).cast::<u64>() },
        // The lower half of the bytes, the upper half shifted above the cancelled bit, source, tag,
        // error. SAFETY: upheld by the caller.
        MpiFamily::Mpich => unsafe { u64::from(*words) | u64::from(*words.add(1) >> 1) << 32 },
        MpiFamily::Abi => mpi_queries::elements(words.cast(), datatype)
            .saturating_mul(mpi_queries::size_of(datatype)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(words: [u32; 6]) -> MpiStatus {
        let mut bytes = [0; 64];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        MpiStatus(MaybeUninit::new(bytes))
    }

    #[test]
    fn each_family_has_its_own_place_for_the_count() {
        let mut open_mpi = status([9, 9, 9, 9, 7, 5]);
        // SAFETY: has the layout of Open MPI.
        let bytes = unsafe { received(MpiFamily::OpenMpi, open_mpi.address(), 0) };
        assert_eq!(bytes, 5 << 32 | 7);

        // The lowest bit means cancelled.
        let mut mpich = status([7, 5 << 1 | 1, 9, 9, 9, 0]);
        // SAFETY: has the layout of MPICH.
        let bytes = unsafe { received(MpiFamily::Mpich, mpich.address(), 0) };
        assert_eq!(bytes, 5 << 32 | 7);
    }
}
