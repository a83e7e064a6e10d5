//! How many bytes a collective call moves for its caller: what it hands in; where it only receives, what
//! it gets. A buffer that goes to all counts once, parts for each member are summed. Arguments that mean
//! nothing for the caller (those of the root, elsewhere) are never looked at.

use crate::arguments::{Arguments, Width};
use crate::family::family;
use crate::library::{has_two_groups, members, peers, rank, size_of, targets};
use crate::rule::{Own, Rule, bytes};

/// Declares rules that are plain functions.
macro_rules! rules {
    ($($name:ident($arguments:ident, $width:ident) $body:block)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Rule for $name {
            // Not inlined: many wrappers share it, and their calls take longer than this.
            #[inline(never)]
            fn after<$width: Width>($arguments: &Arguments<'_>, _: &Own) -> u64 $body
        }
    )*};
}

/// What the caller is in a call with a root.
enum Part {
    /// Of a call between two groups, on the side of the root.
    None,
    /// With so many others.
    Root(usize),
    Other,
}

fn part(root: i32, comm: usize) -> Part {
    if root == family().proc_null() {
        Part::None
    } else if root == family().root() {
        Part::Root(peers(comm))
    // Between two groups a plain number names a root on the other side.
    } else if rank(comm) == Some(root) && !has_two_groups(comm) {
        Part::Root(members(comm))
    } else {
        Part::Other
    }
}

fn is_in_place(arguments: &Arguments<'_>) -> bool {
    arguments.word(0) == family().in_place()
}

/// The sum over an array of counts, each with a type of its own.
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
        match gathering(arguments.int(6), arguments.word(7)) {
            Gathering::Nothing => 0,
            Gathering::From(others) => received().saturating_mul(others as u64),
            Gathering::Own if is_in_place(arguments) => received(),
            Gathering::Own => bytes(arguments.count::<W>(1), arguments.word(2)),
        }
    }

    Gatherv(arguments, W) {
        match gathering(arguments.int(7), arguments.word(8)) {
            Gathering::Nothing => 0,
            Gathering::From(others) => bytes(arguments.sum::<W>(4, others), arguments.word(6)),
            Gathering::Own if is_in_place(arguments) => own_share::<W>(arguments, 4, 6, 8),
            Gathering::Own => bytes(arguments.count::<W>(1), arguments.word(2)),
        }
    }

    Scatter(arguments, W) {
        match part(arguments.int(6), arguments.word(7)) {
            Part::None => 0,
            Part::Root(others) => {
                bytes(arguments.count::<W>(1), arguments.word(2)).saturating_mul(others as u64)
            }
            Part::Other => bytes(arguments.count::<W>(4), arguments.word(5)),
        }
    }

    Scatterv(arguments, W) {
        match part(arguments.int(7), arguments.word(8)) {
            Part::None => 0,
            Part::Root(others) => bytes(arguments.sum::<W>(1, others), arguments.word(3)),
            Part::Other => bytes(arguments.count::<W>(5), arguments.word(6)),
        }
    }

    Allgather(arguments, W) {
        match is_in_place(arguments) {
            true => bytes(arguments.count::<W>(4), arguments.word(5)),
            false => bytes(arguments.count::<W>(1), arguments.word(2)),
        }
    }

    Allgatherv(arguments, W) {
        match is_in_place(arguments) {
            true => own_share::<W>(arguments, 4, 6, 7),
            false => bytes(arguments.count::<W>(1), arguments.word(2)),
        }
    }

    Alltoall(arguments, W) {
        let each = match is_in_place(arguments) {
            true => bytes(arguments.count::<W>(4), arguments.word(5)),
            false => bytes(arguments.count::<W>(1), arguments.word(2)),
        };
        each.saturating_mul(peers(arguments.word(6)) as u64)
    }

    Alltoallv(arguments, W) {
        let (counts, datatype) = match is_in_place(arguments) {
            true => (5, 7),
            false => (1, 3),
        };
        let count = arguments.sum::<W>(counts, peers(arguments.word(8)));
        bytes(count, arguments.word(datatype))
    }

    Alltoallw(arguments, W) {
        let (counts, types) = match is_in_place(arguments) {
            true => (5, 7),
            false => (1, 3),
        };
        sum_of_types::<W>(arguments, counts, types, peers(arguments.word(8)))
    }

    NeighborAlltoall(arguments, W) {
        let each = bytes(arguments.count::<W>(1), arguments.word(2));
        each.saturating_mul(targets(arguments.word(6)) as u64)
    }

    NeighborAlltoallv(arguments, W) {
        let count = arguments.sum::<W>(1, targets(arguments.word(8)));
        bytes(count, arguments.word(3))
    }

    NeighborAlltoallw(arguments, W) {
        sum_of_types::<W>(arguments, 1, 3, targets(arguments.word(8)))
    }
}

/// In a gather all hand in their own part, but a root between two groups, which only receives.
enum Gathering {
    Nothing,
    From(usize),
    Own,
}

fn gathering(root: i32, comm: usize) -> Gathering {
    if root == family().proc_null() {
        Gathering::Nothing
    } else if root == family().root() {
        Gathering::From(peers(comm))
    } else {
        Gathering::Own
    }
}

/// The caller's part of a buffer that is already in place.
fn own_share<W: Width>(arguments: &Arguments<'_>, counts: usize, of: usize, comm: usize) -> u64 {
    let own = rank(arguments.word(comm)).unwrap_or(0).max(0) as usize;
    let count = arguments.count_at::<W>(counts, own);
    count.saturating_mul(size_of(arguments.word(of)))
}
