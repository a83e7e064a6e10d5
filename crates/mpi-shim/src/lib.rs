//! The library that `pegel run -m` preloads into a program: counts its MPI calls, their bytes and time.
//!
//! One file for Open MPI, MPICH and what derives from them: it is built without any `mpi.h`. A wrapper
//! knows from a table how many arguments its function has and which of them say how much data it moves.
//! All of them travel as words, whatever the library makes of them, because no function of the table takes
//! or gives a floating-point number.
//!
//! - Each function has two wrappers, `MPI_Send` and `PMPI_Send`. Fortran needs hardly any of its own: its
//!   bindings call one of the two in C, Open MPI's the second, MPICH's either. A mark in the thread makes
//!   sure that of calls within calls only the outermost counts.
//! - A wrapper calls the *next* function of its own name, so that other tools behind it still see the call.
//! - Nothing runs before the first MPI call: no constructor, no thread, no file. After the first call of a
//!   name, a wrapper takes no lock, allocates nothing and makes no system call.
//! - Not here: `MPI_Pcontrol` (its arguments cannot be passed on), `MPI_Wtime` and `MPI_Wtick`, `MPI_Aint_*`,
//!   conversions between C and Fortran, `MPI_T_*`.
//!
//! What bytes mean: what the caller hands to the call, as posted; for a blocking receive what came; for a
//! call that only receives the buffer for that. The page is `docs/decisions/0009-mpi-shim.md`.

mod arguments;
mod byte_rule;
mod call;
mod collective;
mod family;
mod fortran;
mod inside_flag;
mod mpi_queries;
mod persistent_requests;
mod resolve;
mod status;
mod table;
mod threads;
mod ticks;
mod wrap;

/// The functions that have wrappers, by their C names, and the number of their arguments.
pub fn functions() -> impl Iterator<Item = (&'static str, usize)> {
    table::NAMES.iter().chain(fortran::QUESTIONS).copied()
}
