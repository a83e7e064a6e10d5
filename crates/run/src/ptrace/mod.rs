//! Counting by ptrace(2): every system call stops twice, and is read while it stands still.

mod attach;
mod call;
mod hold;
mod tracer;
mod wait;

pub use attach::AttachError;
pub(crate) use attach::{
    IS_ASKED, attach, catch_signals, check, check_untraced, status_number, threads,
};
pub(crate) use hold::{Held, Hold};
pub use tracer::Ending;
pub(crate) use tracer::{Step, Tracer};
