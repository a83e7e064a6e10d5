//! The summary of a program that ended.

use std::time::Duration;

use crate::CountingMethod;
use crate::ptrace::ProcessEnd;
use crate::syscall_tally::CountedCall;

/// The counts of a program, and how it ended.
#[derive(Debug)]
pub struct ProgramSummary {
    pub method: CountingMethod,
    pub end: ProcessEnd,
    pub elapsed: Duration,
    /// The number of processes; None if unknown (eBPF).
    pub processes: Option<u64>,
    /// Most frequent first.
    pub calls: Vec<CountedCall>,
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
