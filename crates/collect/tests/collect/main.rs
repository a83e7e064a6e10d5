//! The collectors over fixture trees and over this machine, from outside the crate.

mod allocations;
mod big;
mod golden;
mod kernel_files;
mod names;
mod nvidia;
mod sampler;
mod states;
mod support;
mod sysfs;
