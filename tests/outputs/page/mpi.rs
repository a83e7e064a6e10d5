//! The state of MPI ranks in the Programs view.

use std::sync::atomic::Ordering::Relaxed;

use pegel_lane::mpi_state::{MpiPhase, comm, state, thread};
use pegel_lane::{ProcessLanes, monotonic_ns};
use pegel_testkit::{BrowserPage, need};

use super::url;
use crate::PEGEL;

#[test]
fn the_ranks_of_mpi_programs_are_shown_with_what_they_are_in() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let builder = PEGEL.agent();
    // What the preloaded library writes: this process is rank 1 of 2, in its second collective.
    let area = ProcessLanes::in_directory(builder.lanes()).mpi_state();
    let area = area.expect("created");
    area.begin(1, 7, 1);
    area.set_world(1, 2);
    area.set_phase(MpiPhase::Running);
    // Ticks are nanoseconds.
    let now = monotonic_ns();
    area.set_clock(now, now, 1 << 32);
    area.set_function(1, "MPI_Barrier");
    let world = &area.comms()[0];
    world[comm::LAST].store(2 << 16 | 1, Relaxed);
    world[comm::MEMBERS].store(2 << 32, Relaxed);
    world[comm::FLAGS].store(u64::from(comm::FLAG_USED) << 32 | 1, Relaxed);
    let entry = area.claim_thread(std::process::id());
    entry[thread::TICKS].store(now.saturating_sub(60_000_000_000), Relaxed);
    entry[thread::NUMBER].store(2, Relaxed);
    entry[thread::STATE].store(1 | state::INSIDE | state::COLLECTIVE, Relaxed);

    let agent = builder.start();
    let mut page = BrowserPage::start(&chromium);
    page.open(&format!("{}#/programs", url(&agent)));
    page.until("document.body?.innerText.includes('in MPI_Barrier #2 (MPI_COMM_WORLD)')");
    // The wait is over: the row changes.
    entry[thread::STATE].store(1 | state::COLLECTIVE, Relaxed);
    page.until("document.body?.innerText.includes('outside MPI')");
    assert_eq!(page.console_errors(), [""; 0]);
}
