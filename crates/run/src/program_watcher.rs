//! The main function of the helper process: selects the method of counting, follows the program to
//! its end and reports the summary. If one method is not available, it falls back to the next; the
//! program runs in any case.

use std::time::Instant;

use crate::helper_process::{self, HelperLink};
use crate::launch::CountingOptions;
use crate::ptrace::{ProcessEnd, TraceStep, Tracer};
use crate::summary::ProgramSummary;
use crate::syscall_tally::{self, SyscallTally};
use crate::{CountingMethod, ebpf};

/// Sent by the helper: the wrapper may execute the program.
pub(crate) const READY: u8 = 1;
/// Sent by the helper: the wrapper must install the seccomp filter, then execute the program.
pub(crate) const READY_FOR_FILTER: u8 = 2;

pub(crate) struct ProgramWatcher<'a> {
    pub note: &'a dyn Fn(&str),
    pub finish: &'a dyn Fn(&ProgramSummary),
}

impl ProgramWatcher<'_> {
    /// Counts the program that the wrapper executes.
    pub(crate) fn count_program(&self, wrapper: i32, link: HelperLink, counting: &CountingOptions) {
        syscall_tally::count_launch();
        let method = counting.method.unwrap_or(CountingMethod::Ebpf);
        if method == CountingMethod::Ebpf {
            match ebpf::ProcessFollower::for_program(wrapper, counting.time, &counting.agents) {
                Ok(follower) => return self.by_ebpf(follower, link),
                Err(error) if counting.method.is_some() => {
                    (self.note)(&format!("eBPF is not available ({error}); using ptrace"));
                }
                Err(error) => (self.note)(&format!("not using eBPF: {error}")),
            }
        }
        self.by_ptrace(wrapper, link, method == CountingMethod::Seccomp);
    }

    fn by_ptrace(&self, wrapper: i32, mut link: HelperLink, is_filtered: bool) {
        let started = Instant::now();
        let mut tally = SyscallTally::new();
        let (tracer, method, answer) = if is_filtered {
            let tracer = Tracer::for_filter(wrapper, &mut tally);
            (tracer, CountingMethod::Seccomp, READY_FOR_FILTER)
        } else {
            let tracer = Tracer::for_exec(wrapper, &mut tally);
            (tracer, CountingMethod::Ptrace, READY)
        };
        match tracer {
            Ok(mut tracer) => {
                (self.note)(&format!("system calls are counted by {method}"));
                // An error means that the wrapper was killed; the tracer reports its exit.
                let _ = link.send(answer);
                drop(link);
                self.follow(&mut tracer, method, started);
            }
            // Reported before the link is dropped, because the program starts then.
            Err(error) => (self.note)(&format!(
                "the kernel does not permit ptrace ({error}); system calls are not counted"
            )),
        }
    }

    fn follow(&self, tracer: &mut Tracer<'_>, method: CountingMethod, started: Instant) {
        loop {
            match tracer.step() {
                Ok(TraceStep::Running) => {}
                Ok(TraceStep::RootEnded(ending)) => {
                    if tracer.has_started() {
                        self.report_end(
                            tracer.tally,
                            method,
                            ending,
                            started,
                            Some(tracer.processes),
                        );
                    }
                    helper_process::release_stderr();
                    if tracer.reap_root() {
                        return;
                    }
                }
                Ok(TraceStep::AllExited) => {
                    if tracer.is_root_privileged {
                        (self.note)("the program gained privileges; its calls are not counted");
                    }
                    return;
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    fn by_ebpf(&self, mut follower: ebpf::ProcessFollower, mut link: HelperLink) {
        let started = Instant::now();
        let mut tally = SyscallTally::new();
        let by = if follower.is_by_agent() {
            " in the agent"
        } else {
            ""
        };
        (self.note)(&format!(
            "system calls are counted by {}{by}",
            CountingMethod::Ebpf
        ));
        let _ = link.send(READY);
        drop(link);
        follower.follow(&mut tally, |tally, ending, has_started, is_complete| {
            if !is_complete {
                (self.note)("lost the agent that counted; counts end with its last reading");
            }
            if has_started {
                self.report_end(tally, CountingMethod::Ebpf, ending, started, None);
            }
            helper_process::release_stderr();
        });
    }

    fn report_end(
        &self,
        tally: &SyscallTally,
        method: CountingMethod,
        ending: ProcessEnd,
        started: Instant,
        processes: Option<u64>,
    ) {
        (self.finish)(&ProgramSummary {
            method,
            end: ending,
            elapsed: started.elapsed(),
            processes,
            calls: tally.counted_calls(),
        });
    }
}
