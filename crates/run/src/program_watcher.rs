//! The main function of the helper process: selects the method of counting, follows the program to
//! its end and reports the summary. If one method is not available, it falls back to the next; the
//! program runs in any case.

use std::time::Instant;

use crate::helper_process::{self, HelperLink};
use crate::launch::CountingOptions;
use crate::observed_process::ObservedProcess;
use crate::ptrace::{ProcessEnd, TraceStep, Tracer};
use crate::resource_usage::ExitUsage;
use crate::run_observer::RunObserver;
use crate::summary::ProgramSummary;
use crate::syscall_tally::{self, SyscallTally};
use crate::{CountingMethod, ebpf, reading_timer};

/// Sent by the helper: the wrapper may execute the program.
pub(crate) const READY: u8 = 1;
/// Sent by the helper: the wrapper must install the seccomp filter, then execute the program.
pub(crate) const READY_FOR_FILTER: u8 = 2;

/// Sent by the wrapper: it could not execute the program.
pub(crate) const EXEC_FAILED: u8 = 3;

pub(crate) struct ProgramWatcher<'a> {
    pub note: &'a dyn Fn(&str),
    pub finish: &'a dyn Fn(&ProgramSummary),
    /// The process that executes the program.
    pub wrapper: i32,
    /// None: system calls are not counted.
    pub counting: Option<&'a CountingOptions>,
}

/// The counts of system calls at the end of the program.
struct CountedEnd<'a> {
    tally: Option<&'a SyscallTally>,
    method: Option<CountingMethod>,
    end: ProcessEnd,
    processes: Option<u64>,
    usage: Option<ExitUsage>,
}

impl ProgramWatcher<'_> {
    /// Counts the program that the wrapper executes. `observer` is None if no summary is wanted.
    pub(crate) fn watch(&self, link: HelperLink, observer: Option<RunObserver>) {
        syscall_tally::count_launch();
        let wrapper = self.wrapper;
        let Some(counting) = self.counting else {
            return self.observe(link, observer);
        };
        let method = counting.method.unwrap_or(CountingMethod::Ebpf);
        if method == CountingMethod::Ebpf {
            match ebpf::ProcessFollower::for_program(wrapper, counting.time, &counting.agents) {
                Ok(follower) => return self.by_ebpf(follower, link, observer),
                Err(error) if counting.method.is_some() => {
                    (self.note)(&format!("eBPF is not available ({error}); using ptrace"));
                }
                Err(error) => (self.note)(&format!("not using eBPF: {error}")),
            }
        }
        self.by_ptrace(link, observer, method == CountingMethod::Seccomp);
    }

    fn by_ptrace(&self, mut link: HelperLink, observer: Option<RunObserver>, is_filtered: bool) {
        let started = Instant::now();
        let mut tally = SyscallTally::new();
        let (tracer, method, answer) = if is_filtered {
            let tracer = Tracer::for_filter(self.wrapper, &mut tally);
            (tracer, CountingMethod::Seccomp, READY_FOR_FILTER)
        } else {
            let tracer = Tracer::for_exec(self.wrapper, &mut tally);
            (tracer, CountingMethod::Ptrace, READY)
        };
        match tracer {
            Ok(mut tracer) => {
                (self.note)(&format!("system calls are counted by {method}"));
                tracer.observer = observer;
                reading_timer::start();
                // An error means that the wrapper was killed; the tracer reports its exit.
                let _ = link.send(answer);
                drop(link);
                self.follow(&mut tracer, method, started);
            }
            // Reported before the program starts.
            Err(error) => {
                (self.note)(&format!(
                    "the kernel does not permit ptrace ({error}); system calls are not counted"
                ));
                self.observe(link, observer);
            }
        }
    }

    fn follow(&self, tracer: &mut Tracer<'_>, method: CountingMethod, started: Instant) {
        loop {
            tracer.take_reading();
            match tracer.step() {
                Ok(TraceStep::Running) => {}
                Ok(TraceStep::RootEnded(end)) => {
                    let observer = tracer.observer.take();
                    if tracer.has_started() {
                        let counted = CountedEnd {
                            tally: Some(tracer.tally),
                            method: Some(method),
                            end,
                            processes: Some(tracer.processes),
                            usage: tracer.exit_usage,
                        };
                        self.report_end(&counted, observer, started);
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

    fn by_ebpf(
        &self,
        mut follower: ebpf::ProcessFollower,
        mut link: HelperLink,
        mut observer: Option<RunObserver>,
    ) {
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
        let followed = follower.follow_first(&mut tally, observer.as_mut());
        if !followed.is_complete {
            (self.note)("lost the agent that counted; counts end with its last reading");
        }
        if followed.has_started {
            let counted = CountedEnd {
                tally: Some(&tally),
                method: Some(CountingMethod::Ebpf),
                end: followed.end,
                processes: None,
                usage: followed.usage,
            };
            self.report_end(&counted, observer, started);
        }
        helper_process::release_stderr();
        follower.follow_rest(&mut tally);
    }

    /// Observes the program without counting its system calls.
    fn observe(&self, mut link: HelperLink, observer: Option<RunObserver>) {
        let Some(mut observer) = observer else {
            return;
        };
        let started = Instant::now();
        let Ok(mut process) = ObservedProcess::new(self.wrapper) else {
            return;
        };
        let _ = link.send(READY);
        let (end, usage) = process.wait(&mut observer);
        if link.receive() != Some(EXEC_FAILED) {
            let counted = CountedEnd {
                tally: None,
                method: None,
                end,
                processes: None,
                usage,
            };
            self.report_end(&counted, Some(observer), started);
        }
        helper_process::release_stderr();
    }

    fn report_end(
        &self,
        counted: &CountedEnd<'_>,
        observer: Option<RunObserver>,
        started: Instant,
    ) {
        let elapsed = started.elapsed();
        let (usage, mpi) = observer.map_or((None, None), |mut observer| {
            let (usage, mpi) = observer.finish(counted.usage);
            (Some(usage), mpi)
        });
        (self.finish)(&ProgramSummary {
            method: counted.method,
            end: counted.end,
            elapsed,
            processes: counted.processes,
            calls: counted
                .tally
                .map(SyscallTally::counted_calls)
                .unwrap_or_default(),
            usage,
            mpi,
        });
    }
}
