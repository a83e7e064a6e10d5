//! The collectors over fixture trees and over this machine, from outside the crate.

mod allocations;
mod golden;
mod kernel_files;
mod large_machine;
mod names;
mod nvidia;
mod sampler;
mod states;
mod support;
mod sysfs;
