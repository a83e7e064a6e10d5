//! Detects the MPI library of this process, and lists the constants of its ABI.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::resolve;

/// A family of MPI libraries with the same ABI: size of handles, layout of a status, constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MpiFamily {
    /// Open MPI and its derivatives, such as Spectrum MPI.
    OpenMpi = 1,
    /// MPICH, MVAPICH, Intel MPI, Cray MPICH, ParaStation MPI.
    Mpich = 2,
    /// Any library with the standard ABI of MPI 5.
    Abi = 3,
}

static FAMILY: AtomicU8 = AtomicU8::new(0);

/// Returns the family found by [`detect`], which runs before the first counted call.
#[inline(always)]
pub(crate) fn mpi_family() -> MpiFamily {
    match FAMILY.load(Ordering::Relaxed) {
        1 => MpiFamily::OpenMpi,
        3 => MpiFamily::Abi,
        _ => MpiFamily::Mpich,
    }
}

#[cold]
pub(crate) fn detect() {
    let family = if resolve::library_file(c"PMPI_Init").is_some_and(|path| is_abi(&path)) {
        MpiFamily::Abi
    } else if !resolve::find_symbol(c"ompi_mpi_comm_world").is_null() {
        MpiFamily::OpenMpi
    } else {
        MpiFamily::Mpich
    };
    FAMILY.store(family as u8, Ordering::Relaxed);
}

fn is_abi(path: &CStr) -> bool {
    let path = path.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libmpi_abi.")
}

impl MpiFamily {
    /// Returns the size of a handle.
    #[inline]
    pub(crate) const fn handle_bytes(self) -> usize {
        match self {
            MpiFamily::Mpich => 4,
            MpiFamily::OpenMpi | MpiFamily::Abi => 8,
        }
    }

    /// Returns the value of `MPI_STATUS_IGNORE`.
    #[inline(always)]
    pub(crate) const fn status_ignore(self) -> usize {
        match self {
            MpiFamily::Mpich => 1,
            MpiFamily::OpenMpi | MpiFamily::Abi => 0,
        }
    }

    /// Returns the value of `MPI_IN_PLACE`.
    pub(crate) const fn in_place(self) -> usize {
        match self {
            MpiFamily::Mpich => usize::MAX,
            MpiFamily::OpenMpi | MpiFamily::Abi => 1,
        }
    }

    /// Returns the value of `MPI_PROC_NULL`: as a root, it is passed by members of the root's group
    /// that do not take part.
    #[inline]
    pub(crate) const fn proc_null(self) -> i32 {
        match self {
            MpiFamily::Mpich => -1,
            MpiFamily::OpenMpi | MpiFamily::Abi => -2,
        }
    }

    /// Returns the value of `MPI_ROOT`, passed by the root itself on an intercommunicator.
    pub(crate) const fn root(self) -> i32 {
        match self {
            MpiFamily::OpenMpi => -4,
            MpiFamily::Mpich | MpiFamily::Abi => -3,
        }
    }

    /// Returns the handle of `MPI_COMM_WORLD`; `None` if the library has none.
    pub(crate) fn comm_world(self) -> Option<usize> {
        self.predefined_comm(c"ompi_mpi_comm_world", 0x4400_0000, 0x101)
    }

    /// Returns the handle of `MPI_COMM_SELF`.
    pub(crate) fn comm_self(self) -> Option<usize> {
        self.predefined_comm(c"ompi_mpi_comm_self", 0x4400_0001, 0x102)
    }

    /// Returns the handle of `MPI_COMM_NULL`.
    pub(crate) fn comm_null(self) -> Option<usize> {
        self.predefined_comm(c"ompi_mpi_comm_null", 0x0400_0000, 0x100)
    }

    fn predefined_comm(self, symbol: &CStr, mpich: usize, abi: usize) -> Option<usize> {
        match self {
            MpiFamily::OpenMpi => {
                let at = resolve::find_data(symbol);
                (!at.is_null()).then_some(at.addr())
            }
            MpiFamily::Mpich => Some(mpich),
            MpiFamily::Abi => Some(abi),
        }
    }

    /// Returns the results of MPI_Topo_test for a Cartesian, a general and a distributed graph;
    /// None if not known.
    pub(crate) const fn topologies(self) -> Option<[i32; 3]> {
        match self {
            MpiFamily::OpenMpi => Some([1, 2, 3]),
            MpiFamily::Mpich => Some([2, 1, 3]),
            MpiFamily::Abi => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_interface_is_known_by_the_name_of_its_library() {
        assert!(is_abi(c"/usr/lib/libmpi_abi.so.1"));
        assert!(is_abi(c"libmpi_abi.so"));
        assert!(!is_abi(c"/opt/libmpi_abi.d/libmpi.so.40"));
        assert!(!is_abi(c"/usr/lib/x86_64-linux-gnu/libmpich.so.12"));
    }
}
