//! Byte rules of collective calls: the bytes that the caller contributes or, if it only receives,
//! those that it gets. A buffer sent to all members counts once; separate parts for each member are
//! summed. Arguments that are not significant for the caller (for example the root's, on other
//! members) are never read: they may be invalid.

use crate::arguments::{Arguments, Width};
use crate::byte_rule::{ByteRule, CallScratch, bytes};
use crate::family::mpi_family;
use crate::mpi_queries::{has_two_groups, members, neighbour_targets, peers, rank, size_of};

/// Defines rules from plain functions.
macro_rules! rules {
    ($($name:ident($arguments:ident, $width:ident) $body:block)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;

        impl ByteRule for $name {
            // Not inlined: many wrappers share it, and collective calls take much longer.
            #[inline(never)]
            fn after<$width: Width>($arguments: &Arguments<'_>, _: &CallScratch) -> u64 $body
        }
    )*};
}

/// The role of the caller in a call with a root.
enum RootRole {
    /// Not taking part: another member of the root's group of an intercommunicator.
    None,
    /// The root, with this number of partners.
    Root(usize),
    Other,
}

fn root_role(root: i32, comm: usize) -> RootRole {
    if root == mpi_family().proc_null() {
        RootRole::None
    } else if root == mpi_family().root() {
        RootRole::Root(peers(comm))
    // On an intercommunicator a rank names a root in the remote group.
    } else if rank(comm) == Some(root) && !has_two_groups(comm) {
        RootRole::Root(members(comm))
    } else {
        RootRole::Other
    }
}

fn is_in_place(arguments: &Arguments<'_>) -> bool {
    arguments.word(0) == mpi_family().in_place()
}

/// Sums the bytes of an array of counts, each with its own type.
fn sum_of_types<W: Width>(arguments: &Arguments<'_>, counts: usize, types: usize, n: usize) -> u64 {
    (0..n).fold(0, |sum: u64, index| {
        let count = arguments.count_at::<W>(counts, index);
        let datatype = match count {
            0 => 0,
            _ => arguments.handle_at(types, index),
        };
        sum.saturating_add(bytes(count, datatype))
    })
}

rules! {
    ReduceScatter(arguments, W) {
        let count = arguments.sum::<W>(2, members(arguments.word(5)));
        bytes(count, arguments.word(3))
    }

    ReduceScatterBlock(arguments, W) {
        let each = bytes(arguments.count::<W>(2), arguments.word(3));
        each.saturating_mul(members(arguments.word(5)) as u64)
    }

    Gather(arguments, W) {
        let received = || bytes(arguments.count::<W>(4), arguments.word(5));
        match gather_role(arguments.int(6), arguments.word(7)) {
            GatherRole::Nothing => 0,
            GatherRole::From(others) => received().saturating_mul(others as u64),
            GatherRole::OwnPart if is_in_place(arguments) => received(),
            GatherRole::OwnPart => bytes(arguments.count::<W>(1), arguments.word(2)),
        }
    }

    Gatherv(arguments, W) {
        match gather_role(arguments.int(7), arguments.word(8)) {
            GatherRole::Nothing => 0,
            GatherRole::From(others) => bytes(arguments.sum::<W>(4, others), arguments.word(6)),
            GatherRole::OwnPart if is_in_place(arguments) => own_share::<W>(arguments, 4, 6, 8),
            GatherRole::OwnPart => bytes(arguments.count::<W>(1), arguments.word(2)),
        }
    }

    Scatter(arguments, W) {
        match root_role(arguments.int(6), arguments.word(7)) {
            RootRole::None => 0,
            RootRole::Root(others) => {
                bytes(arguments.count::<W>(1), arguments.word(2)).saturating_mul(others as u64)
            }
            RootRole::Other => bytes(arguments.count::<W>(4), arguments.word(5)),
        }
    }

    Scatterv(arguments, W) {
        match root_role(arguments.int(7), arguments.word(8)) {
            RootRole::None => 0,
            RootRole::Root(others) => bytes(arguments.sum::<W>(1, others), arguments.word(3)),
            RootRole::Other => bytes(arguments.count::<W>(5), arguments.word(6)),
        }
    }

    Allgather(arguments, W) {
        if is_in_place(arguments) {
            bytes(arguments.count::<W>(4), arguments.word(5))
        } else {
            bytes(arguments.count::<W>(1), arguments.word(2))
        }
    }

    Allgatherv(arguments, W) {
        if is_in_place(arguments) {
            own_share::<W>(arguments, 4, 6, 7)
        } else {
            bytes(arguments.count::<W>(1), arguments.word(2))
        }
    }

    Alltoall(arguments, W) {
        let each = if is_in_place(arguments) {
            bytes(arguments.count::<W>(4), arguments.word(5))
        } else {
            bytes(arguments.count::<W>(1), arguments.word(2))
        };
        each.saturating_mul(peers(arguments.word(6)) as u64)
    }

    Alltoallv(arguments, W) {
        let (counts, datatype) = if is_in_place(arguments) { (5, 7) } else { (1, 3) };
        let count = arguments.sum::<W>(counts, peers(arguments.word(8)));
        bytes(count, arguments.word(datatype))
    }

    Alltoallw(arguments, W) {
        let (counts, types) = if is_in_place(arguments) { (5, 7) } else { (1, 3) };
        sum_of_types::<W>(arguments, counts, types, peers(arguments.word(8)))
    }

    NeighborAlltoall(arguments, W) {
        let each = bytes(arguments.count::<W>(1), arguments.word(2));
        each.saturating_mul(neighbour_targets(arguments.word(6)) as u64)
    }

    NeighborAlltoallv(arguments, W) {
        let count = arguments.sum::<W>(1, neighbour_targets(arguments.word(8)));
        bytes(count, arguments.word(3))
    }

    NeighborAlltoallw(arguments, W) {
        sum_of_types::<W>(arguments, 1, 3, neighbour_targets(arguments.word(8)))
    }
}

/// The role of the caller in a gather. All members contribute their part, except the root of an
/// intercommunicator, which only receives.
enum GatherRole {
    Nothing,
    From(usize),
    OwnPart,
}

fn gather_role(root: i32, comm: usize) -> GatherRole {
    if root == mpi_family().proc_null() {
        GatherRole::Nothing
    } else if root == mpi_family().root() {
        GatherRole::From(peers(comm))
    } else {
        GatherRole::OwnPart
    }
}

/// Returns the bytes of the caller's part of an `MPI_IN_PLACE` buffer.
fn own_share<W: Width>(arguments: &Arguments<'_>, counts: usize, of: usize, comm: usize) -> u64 {
    let own = rank(arguments.word(comm)).unwrap_or(0).max(0) as usize;
    let count = arguments.count_at::<W>(counts, own);
    count.saturating_mul(size_of(arguments.word(of)))
}
