//! A door for `fuzz/`: what is read from an agent, from a wrapper and from the kernel, as functions over bytes. Built only with
//! the feature `fuzzing`; no promise holds from one version to the next.

pub use crate::ebpf::fuzzing::{reading_again, request_again, tracepoint};
