//! The crate as programs use it.

mod names;
mod program;
