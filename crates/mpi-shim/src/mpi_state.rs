//! The MPI state of this process, in its lane: see `pegel_lane::mpi_state` for the layout.
//!
//! [`open`] creates it before the first series. The words of a call are written by the rules in
//! `state_rule`; communicators are found in `comms`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pegel_lane::mpi_state::{FUNCTIONS_MAX, MpiPhase, MpiStateArea, ThreadEntry};
use pegel_lane::process_lanes;

use crate::family::mpi_family;
use crate::thread_words::{self, ThreadWords};
use crate::{comms, mpi_queries};

static AREA: OnceLock<MpiStateArea> = OnceLock::new();

/// The area of a thread that must not write to the lane: a child of `fork` without memory for one
/// of its own.
static UNREAD: OnceLock<MpiStateArea> = OnceLock::new();

/// Creates the area. If that fails, the state is private and not read from outside.
#[cold]
pub(crate) fn open() {
    AREA.get_or_init(|| {
        let area = process_lanes().mpi_state();
        let area = area.unwrap_or_else(|_| MpiStateArea::private());
        area.begin(mpi_family() as u32, launch(), parent_pid());
        comms::open(area);
        area
    });
}

pub(crate) fn area() -> Option<&'static MpiStateArea> {
    AREA.get()
}

/// Returns whether the current thread may write to its entry.
#[inline(always)]
pub(crate) fn is_ready(thread: ThreadWords) -> bool {
    thread.has_entry() && process_lanes().is_certainly_open()
}

/// Gives the current thread an entry. In a child of `fork`, which has lanes of its own, the state
/// is empty: it is no rank.
#[cold]
pub(crate) fn prepare_thread() {
    let thread = thread_words::of_this_thread();
    if !process_lanes().is_ready() {
        let unread = UNREAD.get_or_init(MpiStateArea::private);
        thread.set_entry(&unread.threads()[0]);
    } else if !thread.has_entry()
        && let Some(area) = area()
    {
        thread.set_entry(area.claim_thread(thread_id()));
    }
}

/// Returns an index for a function, whose name is then readable from outside; 0 if there are too
/// many.
#[cold]
pub(crate) fn add_function(name: &str) -> u64 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let index = NEXT.fetch_add(1, Relaxed);
    match area() {
        Some(area) if index < FUNCTIONS_MAX => {
            area.set_function(index, name);
            index as u64
        }
        _ => 0,
    }
}

/// Stores rank and size in `MPI_COMM_WORLD`, after `MPI_Init`.
pub(crate) fn set_world() {
    let (Some(area), Some(world)) = (area(), comms::open_world()) else {
        return;
    };
    if let Some(rank) = mpi_queries::rank(world) {
        let size = mpi_queries::members(world);
        area.set_world(rank.unsigned_abs(), size as u32);
    }
    area.set_phase(MpiPhase::Running);
    comms::find_or_add(world);
}

pub(crate) fn set_finalized() {
    if let Some(area) = area() {
        area.set_phase(MpiPhase::Finalized);
    }
}

/// Stores how ticks are converted to time.
pub(crate) fn set_clock(ticks: u64, nanos: u64, rate: u64) {
    if let Some(area) = area().filter(|_| process_lanes().is_certainly_open()) {
        area.set_clock(ticks, nanos, rate);
    }
}

/// Returns a number that is the same for all processes of one start of the program, and differs
/// from that of others; 0 if the launcher sets no variable to tell them by.
fn launch() -> u64 {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let step = || Some(variable("SLURM_JOB_ID")? + "." + &variable("SLURM_STEP_ID")?);
    let id = variable("PMIX_NAMESPACE")
        .or_else(step)
        .or_else(|| variable("FLUX_JOB_ID"))
        .or_else(|| variable("PALS_APID"));
    id.map_or(0, |id| {
        let words = id.bytes().map(u64::from);
        words.fold(1, comms::mix).max(1)
    })
}

fn parent_pid() -> u32 {
    // SAFETY: has no preconditions.
    unsafe { libc::getppid() }.unsigned_abs()
}

fn thread_id() -> u32 {
    // SAFETY: has no preconditions.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Marks a call as left, on return or unwinding.
pub(crate) struct EnteredCall(pub &'static ThreadEntry);

impl Drop for EnteredCall {
    #[inline(always)]
    fn drop(&mut self) {
        use pegel_lane::mpi_state::{state, thread};
        let word = &self.0[thread::STATE];
        word.store(word.load(Relaxed) & !state::INSIDE, Relaxed);
    }
}
