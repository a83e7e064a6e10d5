//! What is said about a program when it ended.

use std::time::Duration;

use crate::CountingMethod;
use crate::ptrace::ProcessEnd;
use crate::syscall_tally::CountedCall;

/// All that was counted.
#[derive(Debug)]
pub struct ProgramSummary {
    pub method: CountingMethod,
    pub end: ProcessEnd,
    pub elapsed: Duration,
    /// How many processes there were; None where that is not known.
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

    /// Bytes that were read.
    pub fn bytes_in(&self) -> u64 {
        self.bytes(true)
    }

    /// Bytes that were written.
    pub fn bytes_out(&self) -> u64 {
        self.bytes(false)
    }

    fn bytes(&self, reads: bool) -> u64 {
        let calls = self.calls.iter().filter(|call| call.reads == Some(reads));
        calls.map(|call| call.count.bytes).sum()
    }
}
