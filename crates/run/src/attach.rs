//! A process that runs already: its calls are counted until it ends, or until somebody interrupts, which lets it live.

use std::time::Instant;

use crate::ebpf::{self, CallTiming, CountingAgents};
use crate::summary::ProgramSummary;
use crate::syscall_tally::SyscallTally;
use crate::{AttachError, CountingMethod, ptrace};

/// What is to be counted, and how.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    pub pid: i32,
    /// eBPF where it is allowed, else ptrace, if none is named.
    pub method: Option<CountingMethod>,
    /// Only eBPF can do without.
    pub time: CallTiming,
    /// Who may count where this process may not.
    pub agents: CountingAgents,
}

/// `ready` is told how many threads the process has, and how they are counted.
pub fn attach(
    target: &AttachOptions,
    note: &dyn Fn(&str),
    ready: &dyn Fn(usize, CountingMethod),
) -> Result<ProgramSummary, AttachError> {
    let started = Instant::now();
    let pid = target.pid;
    ptrace::check_process(pid)?;
    if target.method != Some(CountingMethod::Ebpf) {
        ptrace::check_untraced(pid)?;
    }
    ptrace::catch_signals();
    let mut tally = SyscallTally::new();
    let mut counted = None;
    if target.method != Some(CountingMethod::Ptrace) {
        let is_ready = |threads| ready(threads, CountingMethod::Ebpf);
        let over = &ptrace::STOP_REQUESTED;
        match ebpf::attach(pid, target.time, &target.agents, &mut tally, is_ready, over) {
            Ok(ending) => counted = Some((ending, None, CountingMethod::Ebpf)),
            Err(error) => note(&format!("not by eBPF: {error}")),
        }
    }
    let (ending, processes, method) = match counted {
        Some(counted) => counted,
        None => {
            let is_ready = |threads| ready(threads, CountingMethod::Ptrace);
            let (ending, processes) = ptrace::attach(pid, &mut tally, &is_ready)?;
            (ending, Some(processes), CountingMethod::Ptrace)
        }
    };
    Ok(ProgramSummary {
        method,
        end: ending,
        elapsed: started.elapsed(),
        processes,
        calls: tally.counted_calls(),
    })
}
