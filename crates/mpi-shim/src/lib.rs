//! The library that `pegel run -m` preloads into a program: counts its MPI calls, their bytes and
//! time.
//!
//! One library serves Open MPI, MPICH and their derivatives: it is built without any `mpi.h`. For
//! each function a table lists the number of arguments and the rule that computes the bytes from
//! them. All arguments are passed on as machine words, which is correct because no function of the
//! table takes or returns a floating-point number.
//!
//! - Each function has two wrappers, `MPI_Send` and `PMPI_Send`. Fortran requires few of its own:
//!   its bindings call one of the two C functions (Open MPI's the second, MPICH's either). A flag
//!   per thread ensures that of nested calls only the outermost is counted.
//! - A wrapper calls the *next* function of its own name, so that other tools loaded after it still
//!   see the call.
//! - Nothing runs before the first MPI call: no constructor, no thread, no file. After the first
//!   call of a name, a wrapper takes no lock, allocates nothing and makes no system call.
//! - Not wrapped: `MPI_Pcontrol` (its variable arguments cannot be passed on), `MPI_Wtime` and
//!   `MPI_Wtick`, `MPI_Aint_*`, conversions between C and Fortran, `MPI_T_*`.
//!
//! - At entry of each call that can wait, the library records what the thread is in: function,
//!   communicator, number of the collective, time. `pegel stuck` reads it from outside: see
//!   `pegel_lane::mpi_state` and `docs/decisions/0064-mpi-state-in-the-lane.md`.
//!
//! Bytes are those that the caller passes to the call, as posted; for a blocking receive those
//! received; for a call that only receives, the size of the receive buffer. See
//! `docs/decisions/0009-mpi-shim.md`.

mod arguments;
mod byte_rule;
mod call;
mod collective;
// Has no dependencies: it runs inside other people's programs.
#[allow(clippy::disallowed_types)]
mod comms;
mod family;
mod fortran;
mod mpi_queries;
mod mpi_state;
mod request_rule;
mod requests;
mod resolve;
mod state_rule;
mod status;
mod table;
mod thread_words;
mod threads;
// Has no dependencies: it runs inside other people's programs.
#[allow(clippy::disallowed_types)]
mod ticks;
mod wrap;

/// Returns the C names of the wrapped functions, with the number of their arguments.
pub fn functions() -> impl Iterator<Item = (&'static str, usize)> {
    table::NAMES.iter().chain(fortran::QUESTIONS).copied()
}
