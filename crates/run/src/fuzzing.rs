//! Entry points for `fuzz/`: the parsers of input from an agent, a wrapper and the kernel, as
//! functions over bytes. Built only with the feature `fuzzing`; not a stable interface.

pub use crate::ebpf::fuzzing::{reading_again, request_again, tracepoint};
