//! `-S PID`: attaching to a running process.

use std::process::{Child, Command, Stdio};

use pegel_testkit::{ChildProcess, OtherUser, TempDir, eventually, need, set_mode};
use rustix::process::{Pid, Signal, kill_process};

use crate::run_mode::{BOUND, RunMode, compile, isolate, pegel, read_report};

/// A target program, killed on drop.
struct TargetProcess(Child);

impl TargetProcess {
    fn start(command: &mut Command) -> TargetProcess {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        TargetProcess(child.expect("started"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("ours").is_none()
    }

    fn tracer(&self) -> String {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:\t"));
        line.expect("a line").to_owned()
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupt_detaches_and_leaves_the_process_running() {
    let home = TempDir::new();
    let Some(program) = compile(&home, "busy", &[]) else {
        return;
    };
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    let methods = RunMode::counting().into_iter().map(|way| match way {
        RunMode::Ebpf => ("ebpf", ": 5 threads, counted by eBPF"),
        _ => ("ptrace", ": 5 threads, counted by ptrace"),
    });
    let ways = methods.flat_map(|method| signals.map(|signal| (method, signal)));
    for ((method, said), signal) in ways {
        let mut target = TargetProcess::start(&mut Command::new(&program));
        let tasks = format!("/proc/{}/task", target.pid());
        eventually("it has five threads", || {
            let count = std::fs::read_dir(&tasks).map_or(0, Iterator::count);
            (count == 5).then_some(()).ok_or(count)
        });
        let pid = target.pid();
        let args = [
            "-v",
            "-S",
            &pid,
            "--method",
            method,
            "--report",
            "report.json",
        ];
        let process = ChildProcess::start(&mut pegel(&home, &args));
        eventually("all five threads are taken", || {
            if process.stderr().contains(said) {
                Ok(())
            } else {
                Err(process.output())
            }
        });
        // Long enough for many rounds of every thread, each of which takes some microseconds.
        let before = cpu_ticks(target.0.id());
        eventually("it works while it is watched", || {
            match cpu_ticks(target.0.id()) - before {
                ticks if ticks >= 20 => Ok(()),
                ticks => Err(ticks),
            }
        });
        process.signal(signal);
        let finished = process.wait(BOUND);
        assert_eq!(finished.code(), Some(0), "{finished}");
        assert!(target.is_alive(), "{signal:?}");
        assert_eq!(target.tracer(), "0");
        let calls = read_report(&home.join("report.json"));
        assert!(calls["getppid"][0] > 10, "{calls:?}");
        // It still works: its CPU time increases.
        let before = cpu_ticks(target.0.id());
        eventually("it works", || {
            if cpu_ticks(target.0.id()) > before {
                Ok(())
            } else {
                Err("no time passes for it")
            }
        });
    }
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let rest = stat.rsplit(')').next().expect("a name");
    let words: Vec<u64> = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse().ok())
        .collect();
    words.iter().sum()
}

#[test]
fn watching_ends_with_the_process() {
    let home = TempDir::new();
    let mut target = TargetProcess::start(Command::new("sleep").arg("1"));
    let args = ["-S", &target.pid()];
    let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("", "")
    );
    eventually("its parent sees the end", || {
        if target.is_alive() {
            Err("it runs")
        } else {
            Ok(())
        }
    });
}

#[track_caller]
fn assert_refused(home: &TempDir, pid: &str, words: &str) {
    let finished = ChildProcess::start(&mut pegel(home, &["-S", pid])).wait(BOUND);
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(finished.stderr.contains(words), "{words}: {finished}");
}

#[test]
fn a_process_that_cannot_be_watched_is_left_alone() {
    let home = TempDir::new();
    let mut gone = Command::new("true").spawn().expect("started");
    gone.wait().expect("ended");
    assert_refused(&home, &gone.id().to_string(), "no such process");
    assert_refused(&home, "-5", "no such process");
    assert_refused(&home, "0", "no such process");
    if let Some(strace) = need("strace") {
        let mut target = TargetProcess::start(Command::new("sleep").arg("1000"));
        let mut command = Command::new(strace);
        command
            .args(["-o", "/dev/null", "-p", &target.pid()])
            .stderr(Stdio::null());
        let mut tracer = TargetProcess::start(&mut command);
        let by = tracer.pid();
        eventually("strace has it", || {
            if target.tracer() == by {
                Ok(())
            } else {
                Err(target.tracer())
            }
        });
        assert_refused(
            &home,
            &target.pid(),
            &format!("is already traced by process {by} (strace)"),
        );
        assert!(target.is_alive() && tracer.is_alive());
        // Otherwise the target would stay stopped.
        let pid = Pid::from_raw(tracer.0.id().cast_signed()).expect("a number");
        kill_process(pid, Signal::INT).expect("ours");
        tracer.0.wait().expect("ended");
        assert!(target.is_alive());
    }
    if OtherUser::new().is_some() {
        let mut target = TargetProcess::start(Command::new("sleep").arg("1000"));
        let mut command = pegel(&home, &["-S", &target.pid()]);
        let binary = home.join("pegel");
        crate::PEGEL.copy_to(&binary);
        set_mode(&home, 0o755);
        use std::os::unix::process::CommandExt;
        command = {
            let mut other = Command::new(&binary);
            other.args(command.get_args());
            isolate(&mut other, &home);
            other
        };
        command
            .uid(OtherUser::UID)
            .gid(OtherUser::UID)
            .current_dir("/");
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.code(), Some(1), "{finished}");
        assert!(finished.stderr.contains("belongs to user 0"), "{finished}");
        assert!(target.is_alive());
        assert_eq!(target.tracer(), "0");
    }
}
