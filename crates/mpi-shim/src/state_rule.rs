//! State rules: what of a call is recorded in the MPI state, from its arguments. `table` assigns
//! one to each function; `request_rule` has those of calls with requests.
//!
//! `enter` is inlined into the wrappers and only stores words. Everything else (a communicator that
//! is used for the first time, requests of collectives) is done in the slow path of a wrapper,
//! which is taken if `look_up` returns `None`.

use std::sync::atomic::Ordering::Relaxed;

use pegel_lane::mpi_state::{ThreadEntry, state, thread};

use crate::arguments::read_handle;
use crate::family::mpi_family;
use crate::requests::{self, CollectiveRequest};
use crate::{comms, mpi_state};

/// Records what a call is about.
pub(crate) trait StateRule {
    /// Kept while the real function runs.
    type Saved;

    /// Looks up what [`StateRule::enter`] records; `None` if that requires preparation.
    #[inline(always)]
    fn look_up(_: &[usize]) -> Option<u64> {
        Some(0)
    }

    /// Prepares a call for which `look_up` returned `None`, and looks up again.
    fn prepare(_: &[usize]) -> u64 {
        0
    }

    /// Records the call. `found` is what `look_up` or `prepare` returned; `is_slow`: after
    /// `prepare`.
    fn enter(
        entry: &ThreadEntry,
        function: u64,
        words: &[usize],
        found: u64,
        is_slow: bool,
    ) -> Self::Saved;

    /// Returns whether the time in the call is time in a collective.
    #[inline(always)]
    fn is_collective(_: &Self::Saved) -> bool {
        false
    }

    /// Called after success.
    #[inline(always)]
    fn after(_: u64, _: &[usize], _: &Self::Saved) {}
}

#[inline(always)]
pub(crate) fn record(entry: &ThreadEntry, state: u64, operand: u64, number: u64) {
    entry[thread::OPERAND].store(operand, Relaxed);
    entry[thread::NUMBER].store(number, Relaxed);
    entry[thread::STATE].store(state | state::INSIDE, Relaxed);
}

#[inline(always)]
pub(crate) fn word(words: &[usize], at: usize) -> usize {
    words.get(at).copied().unwrap_or(0)
}

/// Records the function only.
#[derive(Debug)]
pub(crate) struct Plain;

impl StateRule for Plain {
    type Saved = ();

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, _: &[usize], _: u64, _: bool) {
        entry[thread::STATE].store(function | state::INSIDE, Relaxed);
    }
}

/// A call that waits for one other process: its rank, the tag and the communicator.
#[derive(Debug)]
pub(crate) struct Peer<const PEER: usize, const TAG: usize, const COMM: usize>;

impl<const PEER: usize, const TAG: usize, const COMM: usize> StateRule for Peer<PEER, TAG, COMM> {
    type Saved = ();

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, words: &[usize], _: u64, _: bool) {
        let peer = word(words, PEER) as u32 as u64 | (word(words, TAG) as u64) << 32;
        let comm = comms::masked(word(words, COMM));
        record(entry, function | state::POINT_TO_POINT, comm, peer);
    }
}

/// A collective on a communicator.
#[derive(Debug)]
pub(crate) struct On<const COMM: usize>;

impl<const COMM: usize> StateRule for On<COMM> {
    type Saved = ();

    #[inline(always)]
    fn look_up(words: &[usize]) -> Option<u64> {
        comms::index_of(word(words, COMM))
    }

    fn prepare(words: &[usize]) -> u64 {
        comms::find_or_add(word(words, COMM))
    }

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, _: &[usize], index: u64, _: bool) {
        let number = comms::count_collective(index, function);
        record(entry, function | state::COLLECTIVE, index, number);
    }

    #[inline(always)]
    fn is_collective(_: &()) -> bool {
        true
    }
}

/// Returns the request of the collective that the last call on the communicator began.
fn collective_request(function: u64, comm: usize) -> Option<CollectiveRequest> {
    let index = comms::index_of(comm)?;
    Some(CollectiveRequest {
        operand: index | function << 16,
        number: comms::last_number(index),
    })
}

/// Reads the request that the library stored through the last argument.
fn created_request(words: &[usize]) -> usize {
    match words.last().copied().unwrap_or(0) {
        0 => 0,
        // SAFETY: the library has just stored the request there.
        at => unsafe { read_handle(at, 0) },
    }
}

/// A non-blocking collective, or the creation of a persistent one: the request is the last
/// argument. The starts of a persistent request are counted.
#[derive(Debug)]
pub(crate) struct Begins<const COMM: usize>;

impl<const COMM: usize> StateRule for Begins<COMM> {
    type Saved = ();

    #[inline(always)]
    fn look_up(words: &[usize]) -> Option<u64> {
        On::<COMM>::look_up(words)
    }

    fn prepare(words: &[usize]) -> u64 {
        On::<COMM>::prepare(words)
    }

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, words: &[usize], found: u64, is_slow: bool) {
        On::<COMM>::enter(entry, function, words, found, is_slow);
    }

    #[inline(never)]
    fn after(function: u64, words: &[usize], _: &()) {
        if let Some(collective) = collective_request(function, word(words, COMM)) {
            requests::insert_collective(created_request(words), collective);
        }
    }
}

/// A collective on a communicator that creates another, whose handle it stores through `NEW`.
#[derive(Debug)]
pub(crate) struct Creates<const COMM: usize, const NEW: usize>;

impl<const COMM: usize, const NEW: usize> StateRule for Creates<COMM, NEW> {
    type Saved = ();

    #[inline(always)]
    fn look_up(words: &[usize]) -> Option<u64> {
        On::<COMM>::look_up(words)
    }

    fn prepare(words: &[usize]) -> u64 {
        On::<COMM>::prepare(words)
    }

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, words: &[usize], found: u64, is_slow: bool) {
        On::<COMM>::enter(entry, function, words, found, is_slow);
    }

    #[inline(never)]
    fn after(_: u64, words: &[usize], _: &()) {
        let new = match word(words, NEW) {
            0 => return,
            // SAFETY: the library has just stored the communicator there.
            at => unsafe { read_handle(at, 0) },
        };
        if Some(new) != mpi_family().comm_null() {
            comms::add_created(word(words, COMM), new);
        }
    }
}

/// Frees the communicator at the address in the first argument.
#[derive(Debug)]
pub(crate) struct Frees;

/// Returns the communicator at the address in the first argument.
fn freed_comm(words: &[usize]) -> usize {
    match word(words, 0) {
        0 => 0,
        // SAFETY: the program passes the address of a communicator.
        at => unsafe { read_handle(at, 0) },
    }
}

impl StateRule for Frees {
    type Saved = u64;

    #[inline(always)]
    fn look_up(_: &[usize]) -> Option<u64> {
        None
    }

    fn enter(entry: &ThreadEntry, function: u64, words: &[usize], _: u64, _: bool) -> u64 {
        let comm = freed_comm(words);
        if comm == 0 || Some(comm) == mpi_family().comm_null() {
            Plain::enter(entry, function, words, 0, false);
            return u64::MAX;
        }
        // Before the call: another thread may get the same handle for a new communicator.
        let index = comms::forget(comm);
        let number = comms::count_collective(index, function);
        record(entry, function | state::COLLECTIVE, index, number);
        index
    }

    #[inline(never)]
    fn after(_: u64, _: &[usize], index: &u64) {
        comms::clear(*index);
    }
}

/// `MPI_Init` and `MPI_Init_thread`.
#[derive(Debug)]
pub(crate) struct Initialises;

impl StateRule for Initialises {
    type Saved = ();

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, words: &[usize], _: u64, _: bool) {
        Plain::enter(entry, function, words, 0, false);
    }

    fn after(_: u64, _: &[usize], _: &()) {
        mpi_state::set_world();
    }
}

/// `MPI_Finalize`.
#[derive(Debug)]
pub(crate) struct Finalizes;

impl StateRule for Finalizes {
    type Saved = ();

    #[inline(always)]
    fn enter(entry: &ThreadEntry, function: u64, words: &[usize], _: u64, _: bool) {
        Plain::enter(entry, function, words, 0, false);
    }

    fn after(_: u64, _: &[usize], _: &()) {
        mpi_state::set_finalized();
    }
}
