//! Counts the calls of a running process until it exits or the command is interrupted. The process
//! survives an interrupt.

use std::time::Instant;

use crate::ebpf::{self, CallTiming, CountingAgents};
use crate::run_observer::RunObserver;
use crate::summary::ProgramSummary;
use crate::syscall_tally::SyscallTally;
use crate::{AttachError, CountingMethod, ptrace};

/// The process to count, and the method.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    pub pid: i32,
    /// None: eBPF where it is permitted, otherwise ptrace.
    pub method: Option<CountingMethod>,
    /// Only eBPF can omit the time.
    pub time: CallTiming,
    /// Agents that may count where this process is not permitted to.
    pub agents: CountingAgents,
    /// Whether the summary includes resource usage.
    pub wants_summary: bool,
}

/// Counts the calls of a process. `ready` is called with the number of its threads and the method
/// in use.
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
    let mut observer = target.wants_summary.then(|| RunObserver::new(pid, None));
    let mut counted = None;
    if target.method != Some(CountingMethod::Ptrace) {
        let is_ready = |threads| ready(threads, CountingMethod::Ebpf);
        let over = &ptrace::STOP_REQUESTED;
        let attached = ebpf::attach(
            pid,
            target.time,
            &target.agents,
            &mut tally,
            observer.as_mut(),
            is_ready,
            over,
        );
        match attached {
            Ok(ending) => counted = Some((ending, None, None, CountingMethod::Ebpf)),
            Err(error) => note(&format!("not using eBPF: {error}")),
        }
    }
    let (ending, processes, usage, method) = match counted {
        Some(counted) => counted,
        None => {
            let is_ready = |threads| ready(threads, CountingMethod::Ptrace);
            let ended = ptrace::attach(pid, &mut tally, &mut observer, &is_ready)?;
            let processes = Some(ended.processes);
            (ended.end, processes, ended.usage, CountingMethod::Ptrace)
        }
    };
    let usage = observer.map(|mut observer| observer.finish(usage).0);
    Ok(ProgramSummary {
        method: Some(method),
        end: ending,
        elapsed: started.elapsed(),
        processes,
        calls: tally.counted_calls(),
        usage,
        mpi: None,
    })
}
