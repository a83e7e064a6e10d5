//! State rules of calls that start persistent requests, wait for requests or test them: a thread
//! that waits for the request of a collective waits for that collective.

use std::mem::MaybeUninit;

use pegel_lane::mpi_state::{ThreadEntry, state};

use crate::arguments::{Narrow, Width, read_handle};
use crate::requests::{self, CollectiveRequest};
use crate::state_rule::{Plain, StateRule, record, word};

/// Starts persistent requests: one, or an array of `COUNT` (an argument) at `REQUESTS`.
#[derive(Debug)]
pub(crate) struct Starts<const REQUESTS: usize, const COUNT: usize>;

impl<const REQUESTS: usize, const COUNT: usize> StateRule for Starts<REQUESTS, COUNT> {
    type Saved = ();

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, words: &[usize], _: u64, _: bool) {
        Plain::enter(entry, function, words, 0, false);
    }

    #[inline(always)]
    fn after(_: u64, words: &[usize], _: &()) {
        if requests::has_collectives() {
            each_request::<REQUESTS, COUNT>(words, |_, handle| requests::count_start(handle));
        }
    }
}

/// Instead of the position of a count: there is one request.
pub(crate) const ONE: usize = usize::MAX;

/// Calls `each` with position and handle of the requests that the program passes.
fn each_request<const REQUESTS: usize, const COUNT: usize>(
    words: &[usize],
    mut each: impl FnMut(usize, usize),
) {
    let count = match COUNT {
        ONE => 1,
        count => Narrow::count(word(words, count)) as usize,
    };
    let at = word(words, REQUESTS);
    for position in 0..if at == 0 { 0 } else { count } {
        // SAFETY: the program passes an array of this length.
        each(position, unsafe { read_handle(at, position) });
    }
}

/// The most requests of collectives that one call is seen to wait for.
const WAITED_MAX: usize = 16;

/// The requests of collectives that a call waits for: position and handle.
#[derive(Debug)]
pub(crate) struct WaitedRequests {
    count: usize,
    requests: [MaybeUninit<(usize, usize)>; WAITED_MAX],
}

/// Waits for requests, or tests them.
#[derive(Debug)]
pub(crate) struct Waits<const REQUESTS: usize, const COUNT: usize>;

impl<const REQUESTS: usize, const COUNT: usize> StateRule for Waits<REQUESTS, COUNT> {
    type Saved = WaitedRequests;

    #[inline(always)]
    fn look_up(_: &[usize]) -> Option<u64> {
        (!requests::has_collectives()).then_some(0)
    }

    #[inline(always)]
    fn enter(
        entry: &ThreadEntry,
        function: u64,
        words: &[usize],
        _: u64,
        is_slow: bool,
    ) -> WaitedRequests {
        let mut waited = WaitedRequests {
            count: 0,
            requests: [const { MaybeUninit::uninit() }; WAITED_MAX],
        };
        let mut first = None;
        if is_slow {
            first = find_waited::<REQUESTS, COUNT>(words, &mut waited);
        }
        match first {
            Some(collective) => record(
                entry,
                function | state::WAITS,
                collective.operand,
                collective.number,
            ),
            None => Plain::enter(entry, function, words, 0, false),
        }
        waited
    }

    #[inline(always)]
    fn is_collective(waited: &WaitedRequests) -> bool {
        waited.count > 0
    }

    #[inline(always)]
    fn after(_: u64, words: &[usize], waited: &WaitedRequests) {
        if waited.count > 0 {
            forget_completed::<REQUESTS>(words, waited);
        }
    }
}

/// Finds the requests of collectives. Returns the collective of the first.
#[inline(never)]
fn find_waited<const REQUESTS: usize, const COUNT: usize>(
    words: &[usize],
    waited: &mut WaitedRequests,
) -> Option<CollectiveRequest> {
    let mut first = None;
    each_request::<REQUESTS, COUNT>(words, |position, handle| {
        let Some(collective) = requests::collective_of(handle) else {
            return;
        };
        first.get_or_insert(collective);
        match waited.requests.get_mut(waited.count) {
            Some(place) => {
                place.write((position, handle));
                waited.count += 1;
            }
            // Its handle may belong to another request when this one is complete.
            None => requests::remove(handle),
        }
    });
    first
}

/// Forgets requests whose handles the library has replaced by the null handle. Those of persistent
/// requests stay.
#[inline(never)]
fn forget_completed<const REQUESTS: usize>(words: &[usize], waited: &WaitedRequests) {
    for request in waited.requests.iter().take(waited.count) {
        // SAFETY: `find_waited` has written the first `count` of them.
        let (position, handle) = unsafe { request.assume_init() };
        // SAFETY: it was read from the same array before.
        let now = unsafe { read_handle(word(words, REQUESTS), position) };
        if now != handle {
            requests::remove(handle);
        }
    }
}
