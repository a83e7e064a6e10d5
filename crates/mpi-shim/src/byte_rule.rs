//! How many bytes a call moves, told from its arguments: the rules for single transfers.

use std::mem::MaybeUninit;

use crate::arguments::{Arguments, Wide, Width, read_handle};
use crate::family::mpi_family;
use crate::mpi_queries::size_of;
use crate::persistent_requests;
use crate::status::{self, MpiStatus};

/// What a wrapper keeps while the real function runs.
#[derive(Debug)]
pub(crate) struct CallScratch {
    status: MpiStatus,
    /// Set by the rule that reads it. A zero here would have the compiler fill the status with zeros as well.
    request: MaybeUninit<usize>,
}

impl CallScratch {
    #[inline]
    pub fn new() -> CallScratch {
        CallScratch {
            status: MpiStatus::new(),
            request: MaybeUninit::uninit(),
        }
    }
}

pub(crate) trait ByteRule {
    /// Whether the call is timed, and counted when it is over; if not, it is counted when it begins.
    const TIMED: bool = true;

    /// May replace arguments.
    #[inline]
    fn before(_: &mut [usize], _: &mut CallScratch) {}

    /// After success: the bytes.
    fn after<W: Width>(arguments: &Arguments<'_>, own: &CallScratch) -> u64;
}

/// Counted by name. `MPI_Abort` as well, which does not come back.
#[derive(Debug)]
pub(crate) struct Local;

impl ByteRule for Local {
    const TIMED: bool = false;

    #[inline]
    fn after<W: Width>(_: &Arguments<'_>, _: &CallScratch) -> u64 {
        0
    }
}

/// Waits, or has others wait, and moves no data that it names.
#[derive(Debug)]
pub(crate) struct Timed;

impl ByteRule for Timed {
    #[inline]
    fn after<W: Width>(_: &Arguments<'_>, _: &CallScratch) -> u64 {
        0
    }
}

/// So many elements of a type. Of a call without elements the type may mean nothing.
#[inline(always)]
pub(crate) fn bytes(count: u64, datatype: usize) -> u64 {
    match count {
        0 => 0,
        count => count.saturating_mul(size_of(datatype)),
    }
}

/// A count and a type, by their places.
#[derive(Debug)]
pub(crate) struct Posted<const COUNT: usize, const TYPE: usize>;

impl<const COUNT: usize, const TYPE: usize> ByteRule for Posted<COUNT, TYPE> {
    #[inline(always)]
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        bytes(arguments.count::<W>(COUNT), arguments.word(TYPE))
    }
}

/// The same, unless the root says that the caller has no part in it: then its arguments mean nothing.
#[derive(Debug)]
pub(crate) struct Rooted<const COUNT: usize, const TYPE: usize, const ROOT: usize>;

impl<const COUNT: usize, const TYPE: usize, const ROOT: usize> ByteRule
    for Rooted<COUNT, TYPE, ROOT>
{
    #[inline]
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        match arguments.int(ROOT) == mpi_family().proc_null() {
            true => 0,
            false => bytes(arguments.count::<W>(COUNT), arguments.word(TYPE)),
        }
    }
}

/// One element of a type.
#[derive(Debug)]
pub(crate) struct OneElement<const TYPE: usize>;

impl<const TYPE: usize> ByteRule for OneElement<TYPE> {
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        size_of(arguments.word(TYPE))
    }
}

/// Two transfers in one call.
#[derive(Debug)]
pub(crate) struct Both<const C: usize, const T: usize, const C2: usize, const T2: usize>;

impl<const C: usize, const T: usize, const C2: usize, const T2: usize> ByteRule
    for Both<C, T, C2, T2>
{
    fn after<W: Width>(arguments: &Arguments<'_>, own: &CallScratch) -> u64 {
        let first = Posted::<C, T>::after::<W>(arguments, own);
        first.saturating_add(Posted::<C2, T2>::after::<W>(arguments, own))
    }
}

/// What came, as the status says: the caller's, or ours where the caller wants none.
#[derive(Debug)]
pub(crate) struct Received<const TYPE: usize, const STATUS: usize>;

impl<const TYPE: usize, const STATUS: usize> ByteRule for Received<TYPE, STATUS> {
    #[inline(always)]
    fn before(words: &mut [usize], own: &mut CallScratch) {
        if let Some(status) = words.get_mut(STATUS)
            && *status == mpi_family().status_ignore()
        {
            *status = own.status.address();
        }
    }

    #[inline(always)]
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        let (status, datatype) = (arguments.word(STATUS), arguments.word(TYPE));
        // SAFETY: the library filled it in, because the call succeeded.
        unsafe { status::received(mpi_family(), status, datatype) }
    }
}

/// Sends and receives: what was posted and what came.
#[derive(Debug)]
pub(crate) struct Exchanged<const STATUS: usize>;

impl<const STATUS: usize> ByteRule for Exchanged<STATUS> {
    #[inline(always)]
    fn before(words: &mut [usize], own: &mut CallScratch) {
        Received::<2, STATUS>::before(words, own);
    }

    #[inline(always)]
    fn after<W: Width>(arguments: &Arguments<'_>, own: &CallScratch) -> u64 {
        // Only a library whose status keeps a secret needs the type; in both calls the received one is
        // made of the same elements.
        let came = Received::<2, STATUS>::after::<W>(arguments, own);
        Posted::<1, 2>::after::<W>(arguments, own).saturating_add(came)
    }
}

/// Makes a persistent request, whose address comes last: the bytes count at each start of it.
#[derive(Debug)]
pub(crate) struct Prepared<R>(R);

impl<R: ByteRule> ByteRule for Prepared<R> {
    fn after<W: Width>(arguments: &Arguments<'_>, own: &CallScratch) -> u64 {
        let bytes = R::after::<W>(arguments, own);
        // SAFETY: the library has just written the request there.
        let handle = unsafe { read_handle(arguments.last(), 0) };
        persistent_requests::insert(handle, bytes);
        0
    }
}

/// Partitions, and a large count for each, in `MPI_Psend_init` and `MPI_Precv_init`.
#[derive(Debug)]
pub(crate) struct Partitioned;

impl ByteRule for Partitioned {
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        let partitions = arguments.count::<W>(1);
        let elements = partitions.saturating_mul(arguments.count::<Wide>(2));
        bytes(elements, arguments.word(3))
    }
}

#[derive(Debug)]
pub(crate) struct Start;

impl ByteRule for Start {
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        persistent_requests::bytes_of(arguments.handle_at(0, 0))
    }
}

#[derive(Debug)]
pub(crate) struct Startall;

impl ByteRule for Startall {
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        let count = arguments.count::<W>(0) as usize;
        (0..count).fold(0, |sum: u64, index| {
            sum.saturating_add(persistent_requests::bytes_of(arguments.handle_at(1, index)))
        })
    }
}

/// Afterwards the handle is null, and may soon belong to another request.
#[derive(Debug)]
pub(crate) struct RequestFree;

impl ByteRule for RequestFree {
    fn before(words: &mut [usize], own: &mut CallScratch) {
        own.request.write(Arguments::new(words).handle_at(0, 0));
    }

    fn after<W: Width>(_: &Arguments<'_>, own: &CallScratch) -> u64 {
        // SAFETY: written above, before each call.
        persistent_requests::remove(unsafe { own.request.assume_init() });
        0
    }
}
