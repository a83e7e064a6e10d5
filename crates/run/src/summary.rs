//! The summary of a program that ended.

use std::time::Duration;

use crate::CountingMethod;
use crate::mpi_lanes::MpiSummary;
use crate::ptrace::ProcessEnd;
use crate::resource_usage::ResourceUsage;
use crate::syscall_tally::CountedCall;

/// The counts of a program, and how it ended.
#[derive(Debug)]
pub struct ProgramSummary {
    /// None if system calls were not counted.
    pub method: Option<CountingMethod>,
    pub end: ProcessEnd,
    pub elapsed: Duration,
    /// The number of processes; None if unknown (eBPF).
    pub processes: Option<u64>,
    /// Most frequent first.
    pub calls: Vec<CountedCall>,
    /// CPU time, memory and I/O; None if no summary was requested.
    pub usage: Option<ResourceUsage>,
    /// None if MPI calls were not counted.
    pub mpi: Option<MpiSummary>,
}

impl ProgramSummary {
    pub fn hits(&self) -> u64 {
        self.calls.iter().map(|call| call.count.hits).sum()
    }

    pub fn errors(&self) -> u64 {
        self.calls.iter().map(|call| call.count.errors).sum()
    }

    /// Returns the number of bytes read.
    pub fn bytes_in(&self) -> u64 {
        self.bytes(true)
    }

    /// Returns the number of bytes written.
    pub fn bytes_out(&self) -> u64 {
        self.bytes(false)
    }

    fn bytes(&self, reads: bool) -> u64 {
        let calls = self.calls.iter().filter(|call| call.reads == Some(reads));
        calls.map(|call| call.count.bytes).sum()
    }
}
