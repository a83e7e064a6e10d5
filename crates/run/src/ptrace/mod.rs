//! Counting by ptrace(2): a thread stops at the start and at the end of every system call, and is
//! read while stopped.

mod attach;
mod exit_hold;
mod ptrace_requests;
mod trace_events;
mod tracer;

pub use attach::AttachError;
pub(crate) use attach::{STOP_REQUESTED, attach, catch_signals, check_process, check_untraced};
pub(crate) use exit_hold::{ExitHold, HeldState};
pub use tracer::ProcessEnd;
pub(crate) use tracer::{TraceStep, Tracer};
