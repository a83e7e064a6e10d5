//! Queries to the MPI library about types and communicators, from which byte counts are computed.
//! They call the library's `PMPI_` functions directly, not the wrappers, so that they are never
//! counted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::comms;
use crate::family::{MpiFamily, mpi_family};
use crate::resolve::{self, RealFunction};

/// Defines a query function: takes a handle and returns the integers that the MPI function stores
/// through pointers.
macro_rules! ask {
    ($name:ident, $symbol:literal, $($out:ident: $type:ty),*) => {
        fn $name(handle: usize) -> Option<($($type,)*)> {
            static REAL: RealFunction = RealFunction::new(concat!($symbol, "\0"));
            $(let mut $out: $type = 0;)*
            // SAFETY: the signature is that of the MPI standard; all libraries pass a handle as a
            // word.
            let result = unsafe {
                let real: extern "C-unwind" fn(usize, $(*mut $type),*) -> i32 =
                    std::mem::transmute(REAL.get());
                real(handle, $(&raw mut $out),*)
            };
            (result == 0).then_some(($($out,)*))
        }
    };
}

ask!(type_size, "PMPI_Type_size", size: i32);
ask!(type_size_x, "PMPI_Type_size_x", size: i64);
ask!(comm_size, "PMPI_Comm_size", size: i32);
ask!(comm_rank, "PMPI_Comm_rank", rank: i32);
ask!(comm_remote_size, "PMPI_Comm_remote_size", size: i32);
ask!(comm_test_inter, "PMPI_Comm_test_inter", flag: i32);
ask!(topo_test, "PMPI_Topo_test", kind: i32);
ask!(cart_dimensions, "PMPI_Cartdim_get", dimensions: i32);
ask!(dist_graph_degrees, "PMPI_Dist_graph_neighbors_count", sources: i32, targets: i32, weighted: i32);

/// The sizes of types in the static data of a loaded object: the library's predefined types, which
/// are never freed. A word contains the handle and, in its lower 16 bits, the size.
static SIZES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Instead of a size: the type is not static, and its address may be reused by another type.
const NOT_CACHED: u64 = 0xffff;
/// The maximum number of lookups of a type's location, each of which takes microseconds. After
/// that, sizes of unknown types are queried each time.
const LOOKUPS_MAX: u32 = 1024;

/// Returns the number of data bytes of one element of a type.
#[inline(always)]
pub(crate) fn size_of(datatype: usize) -> u64 {
    match mpi_family() {
        MpiFamily::Mpich => match size_in_handle(datatype) {
            Some(size) => size,
            None => queried_size(datatype),
        },
        MpiFamily::OpenMpi => {
            let entry = cache_entry(datatype).load(Relaxed);
            if entry >> 16 == datatype as u64 && entry & NOT_CACHED != NOT_CACHED {
                entry & NOT_CACHED
            } else {
                cached_size(datatype)
            }
        }
        MpiFamily::Abi => queried_size(datatype),
    }
}

#[inline]
fn cache_entry(datatype: usize) -> &'static AtomicU64 {
    // The predefined types of Open MPI are 512 bytes apart.
    &SIZES[(datatype >> 9 ^ datatype >> 5) % SIZES.len()]
}

#[inline(never)]
fn cached_size(datatype: usize) -> u64 {
    static LOOKUPS: AtomicU32 = AtomicU32::new(0);
    let size = queried_size(datatype);
    let entry = cache_entry(datatype);
    let is_known = entry.load(Relaxed) >> 16 == datatype as u64;
    if !is_known && datatype >> 48 == 0 && LOOKUPS.load(Relaxed) < LOOKUPS_MAX {
        LOOKUPS.fetch_add(1, Relaxed);
        let is_static = resolve::symbol_info(datatype as *const _).is_some();
        let kept = if is_static && size < NOT_CACHED {
            size
        } else {
            NOT_CACHED
        };
        entry.store((datatype as u64) << 16 | kept, Relaxed);
    }
    size
}

#[inline(never)]
fn queried_size(datatype: usize) -> u64 {
    match type_size(datatype) {
        Some((size,)) if size >= 0 => size as u64,
        // Too large for an `int`.
        Some(_) => type_size_x(datatype).map_or(0, |(size,)| size.max(0) as u64),
        None => 0,
    }
}

/// Returns the size of a basic type of MPICH, which is encoded in its handle and thus part of the
/// ABI.
#[inline]
fn size_in_handle(datatype: usize) -> Option<u64> {
    let handle = datatype as u32;
    (handle >> 24 == 0x4c).then_some(u64::from(handle >> 8 & 0xff))
}

/// Returns the size of a communicator's local group.
pub(crate) fn members(comm: usize) -> usize {
    positive(comm_size(comm).map(|(size,)| size))
}

pub(crate) fn rank(comm: usize) -> Option<i32> {
    comm_rank(comm).map(|(rank,)| rank)
}

/// A group of processes, freed when it is dropped.
struct MpiGroup(usize);

/// Defines a query for a group of a communicator.
macro_rules! ask_group {
    ($name:ident, $symbol:literal) => {
        fn $name(comm: usize) -> Option<MpiGroup> {
            static REAL: RealFunction = RealFunction::new(concat!($symbol, "\0"));
            // Large enough for a handle of any library.
            let mut group = 0_usize;
            // SAFETY: the signature is that of the MPI standard; all libraries pass a handle as a
            // word.
            let result = unsafe {
                let real: extern "C-unwind" fn(usize, *mut usize) -> i32 =
                    std::mem::transmute(REAL.get());
                real(comm, &raw mut group)
            };
            (result == 0).then_some(MpiGroup(group))
        }
    };
}

ask_group!(comm_group, "PMPI_Comm_group");
ask_group!(comm_remote_group, "PMPI_Comm_remote_group");
ask!(group_size, "PMPI_Group_size", size: i32);

impl MpiGroup {
    /// Returns the ranks of members in another group; negative for those that are not in it.
    fn translate(&self, ranks: &[i32], to: &MpiGroup) -> Option<Vec<i32>> {
        static REAL: RealFunction = RealFunction::new("PMPI_Group_translate_ranks\0");
        let mut found = vec![-1; ranks.len()];
        // SAFETY: the signature is that of the MPI standard; both arrays have this length.
        let result = unsafe {
            let real: extern "C-unwind" fn(usize, i32, *const i32, usize, *mut i32) -> i32 =
                std::mem::transmute(REAL.get());
            let count = i32::try_from(ranks.len()).ok()?;
            real(self.0, count, ranks.as_ptr(), to.0, found.as_mut_ptr())
        };
        (result == 0).then_some(found)
    }
}

impl Drop for MpiGroup {
    fn drop(&mut self) {
        static REAL: RealFunction = RealFunction::new("PMPI_Group_free\0");
        // SAFETY: the signature is that of the MPI standard; the group was created by a query.
        unsafe {
            let real: extern "C-unwind" fn(*mut usize) -> i32 = std::mem::transmute(REAL.get());
            real(&raw mut self.0);
        }
    }
}

/// Returns the rank in `MPI_COMM_WORLD` of the first member of a communicator.
pub(crate) fn first_world_rank(comm: usize) -> Option<u32> {
    let world = comm_group(comms::world()?)?;
    let ranks = comm_group(comm)?.translate(&[0], &world)?;
    u32::try_from(*ranks.first()?).ok()
}

/// The most members of a group that are translated.
const MEMBERS_MAX: i32 = 1 << 20;

/// Returns a hash of the members of a communicator, in their order, which is the same on all of
/// them. Those of an intercommunicator do not depend on the side.
pub(crate) fn members_hash(comm: usize) -> u64 {
    let hash = |group: Option<MpiGroup>| {
        let group = group?;
        let world = comm_group(comms::world()?)?;
        let (size,) = group_size(group.0)?;
        let ranks: Vec<i32> = (0..size.min(MEMBERS_MAX)).collect();
        let ranks = group.translate(&ranks, &world)?;
        let words = ranks.iter().map(|rank| *rank as u64);
        Some(words.fold(size as u64, comms::mix))
    };
    let local = hash(comm_group(comm)).unwrap_or(0);
    if has_two_groups(comm) {
        let remote = hash(comm_remote_group(comm)).unwrap_or(0);
        return comms::mix(local.min(remote), local.max(remote));
    }
    local
}

/// Returns the number of partners in a collective call: the remote group's size for an
/// intercommunicator.
pub(crate) fn peers(comm: usize) -> usize {
    if has_two_groups(comm) {
        positive(comm_remote_size(comm).map(|(size,)| size))
    } else {
        members(comm)
    }
}

pub(crate) fn has_two_groups(comm: usize) -> bool {
    comm_test_inter(comm).is_some_and(|(flag,)| flag != 0)
}

/// Returns the number of neighbours that a neighbourhood collective sends to.
pub(crate) fn neighbour_targets(comm: usize) -> usize {
    let Some([cart, graph, dist_graph]) = mpi_family().topologies() else {
        return 0;
    };
    match topo_test(comm) {
        Some((kind,)) if kind == cart => 2 * positive(cart_dimensions(comm).map(|(count,)| count)),
        Some((kind,)) if kind == graph => graph_neighbours(comm),
        Some((kind,)) if kind == dist_graph => {
            positive(dist_graph_degrees(comm).map(|(_, targets, _)| targets))
        }
        _ => 0,
    }
}

fn graph_neighbours(comm: usize) -> usize {
    static REAL: RealFunction = RealFunction::new("PMPI_Graph_neighbors_count\0");
    let Some(rank) = rank(comm) else { return 0 };
    let mut count = 0;
    // SAFETY: the signature is that of the MPI standard.
    let result = unsafe {
        let real: extern "C-unwind" fn(usize, i32, *mut i32) -> i32 =
            std::mem::transmute(REAL.get());
        real(comm, rank, &raw mut count)
    };
    positive((result == 0).then_some(count))
}

/// Returns the number of elements in a status whose layout is not public.
pub(crate) fn elements(status: *const u8, datatype: usize) -> u64 {
    static REAL: RealFunction = RealFunction::new("PMPI_Get_count\0");
    let mut count = 0;
    // SAFETY: the signature is that of the MPI standard; the library has filled in the status.
    let result = unsafe {
        let real: extern "C-unwind" fn(*const u8, usize, *mut i32) -> i32 =
            std::mem::transmute(REAL.get());
        real(status, datatype, &raw mut count)
    };
    positive((result == 0).then_some(count)) as u64
}

fn positive(number: Option<i32>) -> usize {
    number.unwrap_or(0).max(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_basic_type_of_mpich_is_in_its_handle() {
        assert_eq!(size_in_handle(0x4c00_080b), Some(8), "MPI_DOUBLE");
        assert_eq!(size_in_handle(0x4c00_0101), Some(1), "MPI_CHAR");
        assert_eq!(size_in_handle(0xffff_ffff_4c00_0405), Some(4), "MPI_INT");
        assert_eq!(size_in_handle(0x8c00_0000), None, "MPI_FLOAT_INT");
        assert_eq!(size_in_handle(0xcc00_0001), None, "a derived type");
        assert_eq!(size_in_handle(0x0c00_0000), None, "MPI_DATATYPE_NULL");
    }
}
