//! A process that runs already: its calls are counted until it ends, or until somebody interrupts, which lets it live.

use std::time::Instant;

use crate::ebpf::{self, Agents, Time};
use crate::summary::Summary;
use crate::tally::Tally;
use crate::{AttachError, Method, ptrace};

/// What is to be counted, and how.
#[derive(Debug, Clone)]
pub struct Attach {
    pub pid: i32,
    /// eBPF where it is allowed, else ptrace, if none is named.
    pub method: Option<Method>,
    /// Only eBPF can do without.
    pub time: Time,
    /// Who may count where this process may not.
    pub agents: Agents,
}

/// `ready` is told how many threads the process has, and how they are counted.
pub fn attach(
    target: &Attach,
    note: &dyn Fn(&str),
    ready: &dyn Fn(usize, Method),
) -> Result<Summary, AttachError> {
    let started = Instant::now();
    let pid = target.pid;
    ptrace::check(pid)?;
    if target.method != Some(Method::Ebpf) {
        ptrace::check_untraced(pid)?;
    }
    ptrace::catch_signals();
    let mut tally = Tally::new();
    let mut counted = None;
    if target.method != Some(Method::Ptrace) {
        let is_ready = |threads| ready(threads, Method::Ebpf);
        let over = &ptrace::IS_ASKED;
        match ebpf::attach(pid, target.time, &target.agents, &mut tally, is_ready, over) {
            Ok(ending) => counted = Some((ending, None, Method::Ebpf)),
            Err(error) => note(&format!("not by eBPF: {error}")),
        }
    }
    let (ending, processes, method) = match counted {
        Some(counted) => counted,
        None => {
            let is_ready = |threads| ready(threads, Method::Ptrace);
            let (ending, processes) = ptrace::attach(pid, &mut tally, &is_ready)?;
            (ending, Some(processes), Method::Ptrace)
        }
    };
    Ok(Summary {
        method,
        ending,
        elapsed: started.elapsed(),
        processes,
        calls: tally.counted(),
    })
}
