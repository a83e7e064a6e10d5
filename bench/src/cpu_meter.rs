//! Reads CPU time and memory of processes and threads.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::is_trial_run;

/// Returns the CPU time of all threads of this process so far, in user and kernel mode.
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Returns the CPU time of the calling thread so far.
pub fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Returns the CPU time of another process so far, including threads that have ended.
pub fn whole_process_cpu_time(pid: u32) -> Duration {
    let mut clock = 0;
    // SAFETY: the clock's id is written to a variable of its type.
    let found = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    assert_eq!(found, 0, "the process runs");
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to a variable of its type.
    let read = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(read, 0, "the process runs");
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Returns the CPU time of another process so far, from the scheduler's statistics. Threads that
/// have ended are not included.
pub fn process_cpu_time(pid: u32) -> Duration {
    cpu_time_of_threads(pid, |_| true)
}

/// Returns the CPU time so far of the threads of another process that have this name.
pub fn thread_cpu_time_of(pid: u32, name: &str) -> Duration {
    cpu_time_of_threads(pid, |thread| {
        let found = std::fs::read_to_string(thread.join("comm"));
        found.is_ok_and(|found| found.trim_end() == name)
    })
}

fn cpu_time_of_threads(pid: u32, is_counted: impl Fn(&Path) -> bool) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let nanos = tasks
        .filter_map(|task| Some(task.ok()?.path()))
        .filter(|task| is_counted(task))
        .filter_map(|task| std::fs::read_to_string(task.join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(nanos)
}

/// Returns the resident memory of a process in MB.
pub fn resident_mb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a VmRSS line");
    let kib: f64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .expect("a number");
    kib * 1024.0 / 1e6
}

/// Measures a running agent for a while: the shares of a core that it takes, in percent, and its
/// resident memory in MB.
pub fn agent_usage(pid: u32) -> (Vec<f64>, Vec<f64>) {
    let (window, windows) = if is_trial_run() { (2, 1) } else { (20, 4) };
    std::thread::sleep(Duration::from_secs(if is_trial_run() { 1 } else { 5 }));
    let (mut shares, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..windows {
        let (before, started) = (process_cpu_time(pid), Instant::now());
        std::thread::sleep(Duration::from_secs(window));
        let used = process_cpu_time(pid) - before;
        shares.push(used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0);
        resident.push(resident_mb(pid));
    }
    (shares, resident)
}
