//! The overhead of `pegel run`: nanoseconds per system call for each method, compared with strace
//! and perf in the same run, and milliseconds per start of a program.
//!
//! Calls that are counted in the kernel cost CPU time of the caller only. With ptrace and strace a
//! call stops for another process, so the CPU time of all processes involved is measured.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use pegel_bench::{BenchReport, FigureGate, cpu_time, is_trial_run, median, release_binary};
use pegel_testkit::TempDir;
use rustix::process::WaitOptions;

const LOAD_FLAG: &str = "--make-calls";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).map(String::as_str) == Some(LOAD_FLAG) {
        return make_calls(words[2].parse().expect("a number"));
    }
    let pid = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(pid)).expect("set for this process");
    let mut report = BenchReport::new("run");
    let pegel = release_binary();
    let dir = TempDir::new();
    calls(&mut report, &pegel, &dir);
    starts(&mut report, &pegel, &dir);
    report.finish()
}

/// The load, run in a child process under the method that is measured. Prints the cost of a call in
/// nanoseconds.
#[allow(clippy::print_stdout)] // Read by the parent process.
fn make_calls(count: u64) -> ExitCode {
    let before = cpu_time();
    for _ in 0..count {
        std::hint::black_box(rustix::process::getppid());
    }
    println!("{}", (cpu_time() - before).as_nanos() as f64 / count as f64);
    ExitCode::SUCCESS
}

fn isolated_command(dir: &TempDir, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("PEGEL_LANES", dir.path())
        .env("XDG_RUNTIME_DIR", dir.path())
        .stdin(Stdio::null());
    command
}

/// Runs the load under the command `words` and returns the cost of a call that it reports; `None`
/// if the command does not work on this machine.
fn cost_in_caller(dir: &TempDir, words: &[&str], count: u64) -> Option<f64> {
    let load = std::env::current_exe().expect("this program");
    let (first, rest) = match words.split_first() {
        Some((first, rest)) => (PathBuf::from(first), rest),
        None => (load.clone(), words),
    };
    let mut command = isolated_command(dir, &first);
    command.args(rest);
    if !words.is_empty() {
        command.arg(&load);
    }
    let output = command
        .args([LOAD_FLAG, &count.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figure = text.split_whitespace().next()?.parse().ok()?;
    output.status.success().then_some(figure)
}

/// Like [`cost_in_caller`], in CPU time of all processes involved, without the cost of their start.
fn cost_in_all_processes(dir: &TempDir, words: &[&str], count: u64) -> Option<f64> {
    let mut used = [0.0; 2];
    for (used, count) in used.iter_mut().zip([1, count]) {
        let before = children_seconds();
        let figure = cost_in_caller(dir, words, count);
        *used = children_seconds() - before;
        figure?;
    }
    Some((used[1] - used[0]) / count as f64 * 1e9)
}

/// Returns the CPU time of all ended children, in steps of ten milliseconds.
fn children_seconds() -> f64 {
    // Tracers become children of this subreaper when their parent has ended.
    while rustix::process::wait(WaitOptions::empty()).is_ok() {}
    let stat = std::fs::read_to_string("/proc/self/stat").expect("this process");
    let rest = stat.rsplit(')').next().expect("a name");
    let ticks = rest.split_whitespace().skip(13).take(2);
    let ticks: f64 = ticks
        .map(|word| word.parse::<f64>().expect("a number"))
        .sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

fn calls(report: &mut BenchReport, pegel: &Path, dir: &TempDir) {
    let pegel = pegel.display().to_string();
    let by = |method: &'static str| [pegel.as_str(), "run", "-s", "--method", method, "--"];
    let (fast, slow) = if is_trial_run() {
        (100_000, 2_000)
    } else {
        (2_000_000, 50_000)
    };
    let (mut plain, mut ebpf, mut untimed, mut bystander) = (vec![], vec![], vec![], vec![]);
    let (mut ptrace, mut seccomp, mut strace, mut perf) = (vec![], vec![], vec![], vec![]);
    let is_ebpf = is_counted_by_ebpf(dir, &pegel);
    for _ in 0..report.repetitions(7) {
        let free = cost_in_caller(dir, &[], fast).expect("it runs alone");
        plain.push(free);
        if is_ebpf {
            let watched = cost_in_caller(dir, &by("ebpf"), fast).expect("it runs");
            ebpf.push(watched - free);
            let counted = cost_in_caller(
                dir,
                &[&by("ebpf")[..5], &["--no-time", "--"]].concat(),
                fast,
            );
            untimed.push(counted.expect("it runs") - free);
            let mut other = isolated_command(dir, Path::new(&pegel));
            other.args(["run", "-s", "--method", "ebpf", "--", "sleep", "1000"]);
            let mut other = other.spawn().expect("started");
            // Waits until the BPF programs are attached.
            std::thread::sleep(std::time::Duration::from_millis(500));
            let beside = cost_in_caller(dir, &[], fast).expect("it runs alone");
            other.kill().expect("ours");
            other.wait().expect("ours");
            bystander.push(beside - free);
        }
        let stopped = cost_in_all_processes(dir, &by("ptrace"), slow).expect("it runs");
        ptrace.push(stopped - free);
        let filter = [
            pegel.as_str(),
            "run",
            "-s",
            "--method",
            "seccomp",
            "--io-only",
            "--",
        ];
        let filtered = cost_in_caller(dir, &filter, fast).expect("it runs");
        seccomp.push(filtered - free);
        let table = ["strace", "-c", "-f", "-o", "/dev/null", "--"];
        strace.extend(cost_in_all_processes(dir, &table, slow).map(|peer| peer - free));
        let trace = ["perf", "trace", "-s", "-o", "/dev/null", "--"];
        perf.extend(cost_in_all_processes(dir, &trace, slow).map(|peer| peer - free));
    }
    report.row("a system call, not counted", "ns", FigureGate::None, plain);
    if is_ebpf {
        report.row(
            "added by eBPF: hits, bytes, time, errors",
            "ns",
            FigureGate::AtMost(260.0),
            ebpf,
        );
        report.row(
            "added by eBPF: hits, bytes, errors",
            "ns",
            FigureGate::AtMost(120.0),
            untimed,
        );
        report.row(
            "added by eBPF to an uncounted process",
            "ns",
            FigureGate::None,
            bystander,
        );
    }
    report.row(
        "added by seccomp to a call that passes",
        "ns",
        FigureGate::None,
        seccomp,
    );
    let mut peers = Vec::new();
    let mut gate = FigureGate::None;
    if !strace.is_empty() {
        let peer = median(&mut strace);
        peers.push(("strace -c -f", peer));
        gate = FigureGate::AtMost(peer);
    }
    if !perf.is_empty() {
        peers.push(("perf trace -s", median(&mut perf)));
    }
    report.row_with_peers(
        "added by ptrace, in all processes",
        "ns",
        gate,
        ptrace,
        &peers,
    );
}

/// Whether eBPF works on this machine.
fn is_counted_by_ebpf(dir: &TempDir, pegel: &str) -> bool {
    let mut command = isolated_command(dir, Path::new(pegel));
    command.args(["run", "-v", "-s", "--method", "ebpf", "--", "true"]);
    let stderr = command.output().expect("started").stderr;
    String::from_utf8_lossy(&stderr).contains("counted by eBPF")
}

/// Measures the wall time from start to end of a program that does nothing.
fn starts(report: &mut BenchReport, pegel: &Path, dir: &TempDir) {
    let methods: [(&str, &[&str], FigureGate); 4] = [
        ("start and end of `true` alone", &[], FigureGate::None),
        (
            "added by `pegel run`",
            &["run", "--"],
            FigureGate::AtMost(5.0),
        ),
        (
            "added by `pegel run -s`, ptrace",
            &["run", "-s", "--method", "ptrace", "--"],
            FigureGate::None,
        ),
        (
            "added by `pegel run -s`, eBPF",
            &["run", "-s", "--method", "ebpf", "--"],
            FigureGate::None,
        ),
    ];
    let mut figures: Vec<Vec<f64>> = vec![Vec::new(); methods.len()];
    for _ in 0..report.repetitions(51) {
        let mut floor = 0.0;
        for ((_, words, _), figures) in methods.iter().zip(&mut figures) {
            let is_baseline = words.is_empty();
            let mut command = if is_baseline {
                isolated_command(dir, Path::new("true"))
            } else {
                isolated_command(dir, pegel)
            };
            if !is_baseline {
                command.args(*words).arg("true");
            }
            let started = Instant::now();
            assert!(command.status().expect("started").success());
            let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
            if is_baseline {
                floor = elapsed_ms;
                figures.push(elapsed_ms);
            } else {
                figures.push(elapsed_ms - floor);
            }
        }
    }
    for ((work, _, gate), figures) in methods.into_iter().zip(figures) {
        report.row(work, "ms", gate, figures);
    }
}
