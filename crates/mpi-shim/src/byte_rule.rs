//! Byte rules: how many bytes a call transfers, computed from its arguments. This file has the
//! rules for single transfers, `collective` those for collective calls; `table` assigns one to each
//! function.

use std::mem::MaybeUninit;

use crate::arguments::{Arguments, Wide, Width, read_handle};
use crate::family::mpi_family;
use crate::mpi_queries::size_of;
use crate::requests;
use crate::status::{self, MpiStatus};

/// The state of a wrapper while the real function runs.
#[derive(Debug)]
pub(crate) struct CallScratch {
    status: MpiStatus,
    /// Set by the rule that reads it. Not initialised: otherwise the compiler would zero the status
    /// as well.
    request: MaybeUninit<usize>,
}

impl CallScratch {
    #[inline]
    pub(crate) fn new() -> CallScratch {
        CallScratch {
            status: MpiStatus::new(),
            request: MaybeUninit::uninit(),
        }
    }
}

/// Computes the bytes of a call.
pub(crate) trait ByteRule {
    /// Whether the call is timed and counted when it returns. If not, it is counted at its start.
    const TIMED: bool = true;

    /// Called before the real function; may replace arguments.
    #[inline]
    fn before(_: &mut [usize], _: &mut CallScratch) {}

    /// Returns the bytes; called after success only.
    fn after<W: Width>(arguments: &Arguments<'_>, scratch: &CallScratch) -> u64;
}

/// Counts the call only. Also for `MPI_Abort`, which does not return.
#[derive(Debug)]
pub(crate) struct Local;

impl ByteRule for Local {
    const TIMED: bool = false;

    #[inline]
    fn after<W: Width>(_: &Arguments<'_>, _: &CallScratch) -> u64 {
        0
    }
}

/// Counts and times a call that synchronises and has no data arguments.
#[derive(Debug)]
pub(crate) struct Timed;

impl ByteRule for Timed {
    #[inline]
    fn after<W: Width>(_: &Arguments<'_>, _: &CallScratch) -> u64 {
        0
    }
}

/// Returns the bytes of `count` elements. The type may be invalid if the count is 0.
#[inline(always)]
pub(crate) fn bytes(count: u64, datatype: usize) -> u64 {
    match count {
        0 => 0,
        count => count.saturating_mul(size_of(datatype)),
    }
}

/// Bytes by a count and a type, at these argument positions.
#[derive(Debug)]
pub(crate) struct Posted<const COUNT: usize, const TYPE: usize>;

impl<const COUNT: usize, const TYPE: usize> ByteRule for Posted<COUNT, TYPE> {
    #[inline(always)]
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        bytes(arguments.count::<W>(COUNT), arguments.word(TYPE))
    }
}

/// Like [`Posted`], but 0 if the root is `MPI_PROC_NULL`: then the other arguments have no meaning.
#[derive(Debug)]
pub(crate) struct Rooted<const COUNT: usize, const TYPE: usize, const ROOT: usize>;

impl<const COUNT: usize, const TYPE: usize, const ROOT: usize> ByteRule
    for Rooted<COUNT, TYPE, ROOT>
{
    #[inline]
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        if arguments.int(ROOT) == mpi_family().proc_null() {
            return 0;
        }
        bytes(arguments.count::<W>(COUNT), arguments.word(TYPE))
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
    fn after<W: Width>(arguments: &Arguments<'_>, scratch: &CallScratch) -> u64 {
        let first = Posted::<C, T>::after::<W>(arguments, scratch);
        first.saturating_add(Posted::<C2, T2>::after::<W>(arguments, scratch))
    }
}

/// Bytes received, from the status: the caller's, or our own if the caller passes
/// `MPI_STATUS_IGNORE`.
#[derive(Debug)]
pub(crate) struct Received<const TYPE: usize, const STATUS: usize>;

impl<const TYPE: usize, const STATUS: usize> ByteRule for Received<TYPE, STATUS> {
    #[inline(always)]
    fn before(words: &mut [usize], scratch: &mut CallScratch) {
        if let Some(status) = words.get_mut(STATUS)
            && *status == mpi_family().status_ignore()
        {
            *status = scratch.status.address();
        }
    }

    #[inline(always)]
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        let (status, datatype) = (arguments.word(STATUS), arguments.word(TYPE));
        // SAFETY: the library has filled in the status, because the call succeeded.
        unsafe { status::received(mpi_family(), status, datatype) }
    }
}

/// Bytes of a send and a receive: those posted and those received.
#[derive(Debug)]
pub(crate) struct Exchanged<const STATUS: usize>;

impl<const STATUS: usize> ByteRule for Exchanged<STATUS> {
    #[inline(always)]
    fn before(words: &mut [usize], scratch: &mut CallScratch) {
        Received::<2, STATUS>::before(words, scratch);
    }

    #[inline(always)]
    fn after<W: Width>(arguments: &Arguments<'_>, scratch: &CallScratch) -> u64 {
        // Only a library with an opaque status needs the type; in both calls the received type has
        // the same elements.
        let received = Received::<2, STATUS>::after::<W>(arguments, scratch);
        Posted::<1, 2>::after::<W>(arguments, scratch).saturating_add(received)
    }
}

/// Creates a persistent request, stored through the last argument; its bytes are counted at each
/// start.
#[derive(Debug)]
pub(crate) struct Prepared<R>(R);

impl<R: ByteRule> ByteRule for Prepared<R> {
    fn after<W: Width>(arguments: &Arguments<'_>, scratch: &CallScratch) -> u64 {
        let bytes = R::after::<W>(arguments, scratch);
        // SAFETY: the library has just stored the request there.
        let handle = unsafe { read_handle(arguments.last(), 0) };
        requests::insert(handle, bytes);
        0
    }
}

/// Bytes of `MPI_Psend_init` and `MPI_Precv_init`: a number of partitions, with an `MPI_Count` for
/// each.
#[derive(Debug)]
pub(crate) struct Partitioned;

impl ByteRule for Partitioned {
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        let partitions = arguments.count::<W>(1);
        let elements = partitions.saturating_mul(arguments.count::<Wide>(2));
        bytes(elements, arguments.word(3))
    }
}

/// Bytes of a persistent request that is started.
#[derive(Debug)]
pub(crate) struct Start;

impl ByteRule for Start {
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        requests::bytes_of(arguments.handle_at(0, 0))
    }
}

/// Bytes of an array of persistent requests that are started.
#[derive(Debug)]
pub(crate) struct Startall;

impl ByteRule for Startall {
    fn after<W: Width>(arguments: &Arguments<'_>, _: &CallScratch) -> u64 {
        let count = arguments.count::<W>(0) as usize;
        (0..count).fold(0, |sum: u64, index| {
            sum.saturating_add(requests::bytes_of(arguments.handle_at(1, index)))
        })
    }
}

/// Forgets a persistent request. Its handle is read before the call, which sets it to null.
#[derive(Debug)]
pub(crate) struct RequestFree;

impl ByteRule for RequestFree {
    fn before(words: &mut [usize], scratch: &mut CallScratch) {
        scratch.request.write(Arguments::new(words).handle_at(0, 0));
    }

    fn after<W: Width>(_: &Arguments<'_>, scratch: &CallScratch) -> u64 {
        // SAFETY: `before` has written it.
        requests::remove(unsafe { scratch.request.assume_init() });
        0
    }
}
