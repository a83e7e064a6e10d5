//! The life of the process that counts: it chooses how, follows the program, and says the last word.

use std::time::Instant;

use crate::apart::{self, Link};
use crate::launch::Counting;
use crate::ptrace::{Ending, Step, Tracer};
use crate::summary::Summary;
use crate::tally::{self, Tally};
use crate::{Method, ebpf};

/// What the helper tells the wrapper: go on, or put the filter in place and go on.
pub(crate) const READY: u8 = 1;
pub(crate) const READY_FOR_FILTER: u8 = 2;

pub(crate) struct Watch<'a> {
    pub note: &'a dyn Fn(&str),
    pub finish: &'a dyn Fn(&Summary),
}

impl Watch<'_> {
    /// Counts the program that the wrapper becomes.
    pub(crate) fn program(&self, wrapper: i32, link: Link, counting: &Counting) {
        tally::count_launch();
        let method = counting.method.unwrap_or(Method::Ebpf);
        if method == Method::Ebpf {
            match ebpf::Follower::for_program(wrapper, counting.time, &counting.agents) {
                Ok(follower) => return self.by_ebpf(follower, link),
                Err(error) if counting.method.is_some() => {
                    (self.note)(&format!("eBPF is not possible ({error}): ptrace is used"));
                }
                Err(error) => (self.note)(&format!("not by eBPF: {error}")),
            }
        }
        self.by_ptrace(wrapper, link, method == Method::Seccomp);
    }

    fn by_ptrace(&self, wrapper: i32, mut link: Link, is_filtered: bool) {
        let started = Instant::now();
        let mut tally = Tally::new();
        let (tracer, method, answer) = match is_filtered {
            true => {
                let tracer = Tracer::for_filter(wrapper, &mut tally);
                (tracer, Method::Seccomp, READY_FOR_FILTER)
            }
            false => {
                let tracer = Tracer::for_exec(wrapper, &mut tally);
                (tracer, Method::Ptrace, READY)
            }
        };
        match tracer {
            Ok(mut tracer) => {
                (self.note)(&format!("system calls are counted by {method}"));
                // When the wrapper is gone, so is its thread.
                let _ = link.send(answer);
                drop(link);
                self.follow(&mut tracer, method, started);
            }
            // The program starts when the link is gone: whoever asked is told before.
            Err(error) => (self.note)(&format!(
                "the kernel allows no ptrace ({error}): system calls are not counted"
            )),
        }
    }

    fn follow(&self, tracer: &mut Tracer<'_>, method: Method, started: Instant) {
        loop {
            match tracer.step() {
                Ok(Step::Going) => {}
                Ok(Step::RootEnded(ending)) => {
                    if tracer.has_started() {
                        self.say_end(
                            tracer.tally,
                            method,
                            ending,
                            started,
                            Some(tracer.processes),
                        );
                    }
                    apart::let_stderr_go();
                    if tracer.bury() {
                        return;
                    }
                }
                Ok(Step::AllGone) => {
                    if tracer.is_root_privileged {
                        (self.note)("the program got rights of its own: its calls are not counted");
                    }
                    return;
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    fn by_ebpf(&self, mut follower: ebpf::Follower, mut link: Link) {
        let started = Instant::now();
        let mut tally = Tally::new();
        let by = match follower.is_by_agent() {
            true => " of the agent",
            false => "",
        };
        (self.note)(&format!("system calls are counted by {}{by}", Method::Ebpf));
        let _ = link.send(READY);
        drop(link);
        follower.follow(&mut tally, |tally, ending, has_started, is_complete| {
            if !is_complete {
                (self.note)("the agent that counted is gone: counts end with its last reading");
            }
            if has_started {
                self.say_end(tally, Method::Ebpf, ending, started, None);
            }
            apart::let_stderr_go();
        });
    }

    fn say_end(
        &self,
        tally: &Tally,
        method: Method,
        ending: Ending,
        started: Instant,
        processes: Option<u64>,
    ) {
        (self.finish)(&Summary {
            method,
            ending,
            elapsed: started.elapsed(),
            processes,
            calls: tally.counted(),
        });
    }
}
