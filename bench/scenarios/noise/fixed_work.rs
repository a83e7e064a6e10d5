//! The loop whose delays are measured: one thread pinned to each processor repeats the same work.

use std::fmt;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::delays::DelayCounts;

/// The duration of one undisturbed repetition: short compared with a time slice of the scheduler,
/// long compared with reading the clock.
const QUANTUM: Duration = Duration::from_micros(100);

/// A fixed amount of work, and the processors that repeat it.
#[derive(Debug)]
pub(crate) struct FixedWork {
    steps: u64,
    processors: Vec<usize>,
}

impl fmt::Display for FixedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fixed work of {} µs ({} steps) on {} processors",
            QUANTUM.as_micros(),
            self.steps,
            self.processors.len()
        )
    }
}

impl FixedWork {
    /// Finds the number of steps that take a quantum on this machine.
    pub(crate) fn calibrate() -> FixedWork {
        let steps = 100_000;
        let shortest = (0..200)
            .map(|_| {
                let before = Instant::now();
                compute(steps);
                before.elapsed()
            })
            .min()
            .expect("several repetitions");
        let steps = steps as f64 * QUANTUM.as_secs_f64() / shortest.as_secs_f64();
        let allowed = sched_getaffinity(None).expect("a thread has processors");
        FixedWork {
            steps: steps as u64,
            processors: (0..CpuSet::MAX_CPU)
                .filter(|cpu| allowed.is_set(*cpu))
                .collect(),
        }
    }

    /// Repeats the work on all processors for a while; returns the delays.
    pub(crate) fn run(&self, length: Duration) -> DelayCounts {
        let start = Barrier::new(self.processors.len());
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .processors
                .iter()
                .map(|cpu| scope.spawn(|| self.run_on(*cpu, length, &start)))
                .collect();
            let counts: Vec<DelayCounts> = threads
                .into_iter()
                .map(|thread| thread.join().expect("the loop does not fail"))
                .collect();
            DelayCounts::sum(counts.iter())
        })
    }

    fn run_on(&self, cpu: usize, length: Duration, start: &Barrier) -> DelayCounts {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).expect("the processor is allowed");
        // Written once in advance: a page fault during the measurement would count as a delay.
        let capacity = 2 * length.as_nanos() / QUANTUM.as_nanos();
        let mut durations = vec![u32::MAX; capacity as usize];
        start.wait();
        let begin = Instant::now();
        let mut last = begin;
        let mut count = 0;
        // No gap between repetitions, so that every interruption falls into one of them.
        while count < durations.len() && last - begin < length {
            compute(self.steps);
            let now = Instant::now();
            durations[count] = u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX);
            last = now;
            count += 1;
        }
        DelayCounts::of_durations(&mut durations[..count])
    }
}

/// Work without memory accesses and system calls: each step depends on the one before.
fn compute(steps: u64) {
    let mut state = black_box(1_u64);
    for step in 0..steps {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(step);
    }
    black_box(state);
}
