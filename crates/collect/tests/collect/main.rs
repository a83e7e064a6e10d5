//! The collectors over fixture trees and over this machine, from outside the crate.

mod allocations;
mod golden;
mod golden_labels;
mod kernel_files;
mod large_machine;
mod metrics_page;
mod names;
mod nvidia;
mod sampler;
mod states;
mod support;
mod sysfs;
