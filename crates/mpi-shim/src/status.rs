//! What a status says about the data that came.

use crate::family::Family;
use crate::library;

/// Room for the status of any family, aligned for all of them.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Status([u8; 64]);

impl Status {
    pub const fn new() -> Status {
        Status([0; 64])
    }

    pub fn address(&mut self) -> usize {
        self.0.as_mut_ptr() as usize
    }
}

/// The bytes that a receive took.
///
/// # Safety
///
/// `status` must be the address of a status that a library of this family filled in.
// SAFETY: the caller keeps what is said above.
pub(crate) unsafe fn received(family: Family, status: usize, datatype: usize) -> u64 {
    let words = status as *const u32;
    match family {
        // Source, tag, error, cancelled, then the bytes as a `size_t`.
        // SAFETY: promised by the caller.
        Family::OpenMpi => unsafe { *words.add(4).cast::<u64>() },
        // The bytes' lower half, the upper one above the mark of cancelling, source, tag, error.
        // SAFETY: promised by the caller.
        Family::Mpich => unsafe { u64::from(*words) | u64::from(*words.add(1) >> 1) << 32 },
        Family::Abi => {
            library::elements(words.cast(), datatype).saturating_mul(library::size_of(datatype))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_own_place_for_the_count() {
        let mut open_mpi = Status::new();
        open_mpi.0[..12].fill(0xff);
        open_mpi.0[16..24].copy_from_slice(&(5_u64 << 32 | 7).to_ne_bytes());
        // SAFETY: laid out as Open MPI does.
        let bytes = unsafe { received(Family::OpenMpi, open_mpi.address(), 0) };
        assert_eq!(bytes, 5 << 32 | 7);

        let mut mpich = Status::new();
        mpich.0[8..20].fill(0xff);
        mpich.0[..4].copy_from_slice(&7_u32.to_ne_bytes());
        // A cancelled one is marked in the lowest bit.
        mpich.0[4..8].copy_from_slice(&(5_u32 << 1 | 1).to_ne_bytes());
        // SAFETY: laid out as MPICH does.
        let bytes = unsafe { received(Family::Mpich, mpich.address(), 0) };
        assert_eq!(bytes, 5 << 32 | 7);
    }
}
