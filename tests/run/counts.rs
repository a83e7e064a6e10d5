//! Counts are exact: they equal what the program reports and what strace counts.

use std::collections::BTreeMap;
use std::process::Command;

use pegel_testkit::{ChildProcess, TempDir, eventually, need, need_hardware};

use crate::run_mode::{BOUND, RunMode, compile, isolate, pegel, read_report};

/// Number of rounds of the test program.
const ROUNDS: u64 = 260;

fn report(way: RunMode, home: &TempDir, argv: &[&str]) -> BTreeMap<String, [u64; 3]> {
    let method = match way {
        RunMode::Ebpf => "ebpf",
        _ => "ptrace",
    };
    let path = home.join("report.json");
    let _ = std::fs::remove_file(&path);
    let options = ["-s", "--method", method, "--report", "report.json", "--"];
    let args = [&options[..], argv].concat();
    let finished = ChildProcess::start(&mut pegel(home, &args)).wait(BOUND);
    assert!(finished.status.code().is_some(), "{finished}");
    // The report exists when the command returns, except after an exec by another thread, whose
    // exit cannot be delayed.
    if way == RunMode::Ebpf && argv[0].ends_with("/exec_from_thread") {
        eventually("the report", || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            text.ends_with("}\n").then_some(()).ok_or(text)
        });
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text.contains(if way == RunMode::Ebpf {
            "eBPF"
        } else {
            "ptrace"
        }),
        "{way:?} {argv:?}: {finished}\n{text}"
    );
    read_report(&path)
}

#[test]
fn calls_of_threads_children_and_programs_are_counted_exactly() {
    let home = TempDir::new();
    let Some(program) = compile(&home, "known", &[]) else {
        return;
    };
    let program = program.display().to_string();
    for way in RunMode::counting() {
        for _ in 0..3 {
            let calls = report(way, &home, &[&program]);
            let hits = |name: &str| calls.get(name).map_or(0, |counts| counts[0]);
            assert_eq!(hits("getppid"), ROUNDS, "{way:?}: {calls:?}");
            assert_eq!(calls["write"], [ROUNDS, 7 * ROUNDS, 0], "{way:?}");
            assert_eq!(calls["writev"], [ROUNDS, 7 * ROUNDS, 0], "{way:?}");
            assert_eq!(calls["read"][2], ROUNDS, "{way:?}: one error each round");
            assert_eq!(hits("execve"), 2, "{way:?}");
            assert_eq!((hits("exit"), hits("exit_group")), (4, 4), "{way:?}");
        }
    }
}

/// Like ranks under mpirun: later ones share the BPF programs that the first one loaded, even after
/// it has exited.
#[test]
fn concurrent_programs_are_counted_separately() {
    let homes: Vec<TempDir> = (0..8).map(|_| TempDir::new()).collect();
    let Some(program) = compile(&homes[0], "known", &[]) else {
        return;
    };
    let program = program.display().to_string();
    for way in RunMode::counting() {
        for round in 0..3 {
            let method = if way == RunMode::Ebpf {
                "ebpf"
            } else {
                "ptrace"
            };
            let start = |home: &TempDir, pause: usize| {
                let script = format!("{program} || sleep 0.{}", pause % 3);
                let options = ["-s", "--method", method, "--report", "report.json", "--"];
                let args = [&options[..], &["sh", "-c", &script]].concat();
                ChildProcess::start(&mut pegel(home, &args))
            };
            let processes: Vec<ChildProcess> = homes
                .iter()
                .enumerate()
                .map(|(index, home)| start(home, index + round))
                .collect();
            for (process, home) in processes.into_iter().zip(&homes) {
                let finished = process.wait(BOUND);
                assert_eq!(finished.code(), Some(0), "{finished}");
                let calls = read_report(&home.join("report.json"));
                assert_eq!(
                    calls["write"],
                    [ROUNDS, 7 * ROUNDS, 0],
                    "{way:?}: {calls:?}"
                );
                assert_eq!(calls["writev"], [ROUNDS, 7 * ROUNDS, 0], "{way:?}");
            }
        }
    }
}

/// Calls whose number depends on the timing of threads and of a child's exit.
const BY_CHANCE: [&str; 8] = [
    "wait4",
    "rt_sigreturn",
    "futex",
    "exit",
    "exit_group",
    "madvise",
    "restart_syscall",
    "sched_yield",
];

#[test]
fn strace_counts_the_same() {
    let Some(strace) = need("strace") else {
        return;
    };
    let home = TempDir::new();
    let Some(known) = compile(&home, "known", &[]) else {
        return;
    };
    let known = known.display().to_string();
    std::fs::write(home.join("words"), "some words\n".repeat(1000)).expect("written");
    let commands: [&[&str]; 4] = [
        &[&known],
        &[
            "sh",
            "-c",
            "grep -c some words; ls /nonexistent; (exit 3); true",
        ],
        &["find", "/usr/share/doc", "-maxdepth", "1", "-name", "a*"],
        &["sort", "words"],
    ];
    for argv in commands {
        let mut command = Command::new(&strace);
        command.args(["-c", "-f", "-o", "table", "--"]).args(argv);
        isolate(&mut command, &home);
        ChildProcess::start(&mut command).wait(BOUND);
        let table = std::fs::read_to_string(home.join("table")).expect("written");
        let expected = read_table(&table);
        assert!(expected.len() > 5, "{table}");
        for way in RunMode::counting() {
            let calls = report(way, &home, argv);
            let found: BTreeMap<String, (u64, u64)> = calls
                .into_iter()
                .filter(|(name, _)| !BY_CHANCE.contains(&name.as_str()))
                .map(|(name, [hits, _, errors])| (name, (hits, errors)))
                .collect();
            assert_eq!(found, expected, "{way:?}: {argv:?}");
        }
    }
}

/// Test programs with the calls whose number is deterministic; without names, all calls.
const PROGRAMS: [(&str, &[&str]); 7] = [
    ("forks", &[]),
    ("spawns", &[]),
    ("no_children", &[]),
    (
        "threads",
        &["clone3", "getppid", "execve", "set_robust_list"],
    ),
    // The first thread may be killed before its last call returns.
    ("exec_from_thread", &["execve", "getpid"]),
    ("leader_leaves", &["clone3", "clock_nanosleep", "execve"]),
    (
        "stops",
        &["clone", "kill", "tgkill", "write", "pipe", "pipe2"],
    ),
];

/// Forks, threads, exec by children, by threads and in place, vfork, clone3, stops.
#[test]
fn strace_counts_the_test_programs_the_same() {
    let Some(strace) = need("strace") else {
        return;
    };
    let home = TempDir::new();
    for (name, calls) in PROGRAMS {
        let Some(program) = compile(&home, name, &[]) else {
            return;
        };
        let program = program.display().to_string();
        let mut command = Command::new(&strace);
        command.args(["-c", "-f", "-o", "table", "--", &program]);
        isolate(&mut command, &home);
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.code(), Some(42), "{name}: {finished}");
        let table = std::fs::read_to_string(home.join("table")).expect("written");
        let is_certain = |call: &str| calls.is_empty() || calls.contains(&call);
        let mut expected = read_table(&table);
        expected.retain(|call, _| is_certain(call));
        assert!(expected.len() >= 2, "{name}: {table}");
        for way in RunMode::counting() {
            let mut found: BTreeMap<String, (u64, u64)> = report(way, &home, &[&program])
                .into_iter()
                .map(|(call, [hits, _, errors])| (call, (hits, errors)))
                .collect();
            found.retain(|call, _| is_certain(call) && !BY_CHANCE.contains(&call.as_str()));
            assert_eq!(found, expected, "{way:?}: {name}");
        }
    }
}

/// The calls of the program with handlers, timers and queued signals are known without strace,
/// which counts a call again when it is restarted after a handler.
#[test]
fn signals_are_not_counted_as_calls() {
    let home = TempDir::new();
    let Some(program) = compile(&home, "signals", &[]) else {
        return;
    };
    let program = program.display().to_string();
    for way in RunMode::counting() {
        for _ in 0..5 {
            let calls = report(way, &home, &[&program]);
            let hits = |name: &str| calls.get(name).map_or(0, |counts| counts[0]);
            assert_eq!(hits("rt_sigqueueinfo"), 10, "{way:?}: {calls:?}");
            assert_eq!(hits("setitimer"), 2, "{way:?}");
            assert_eq!(hits("rt_sigaction"), 3, "{way:?}");
            assert_eq!(calls["write"], [1, 1, 0], "{way:?}");
        }
    }
}

/// Parses hits and errors of each call from the table of `strace -c`.
fn read_table(table: &str) -> BTreeMap<String, (u64, u64)> {
    let mut calls = BTreeMap::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(Ok(hits))) = (words.last(), words.get(3).map(|word| word.parse()))
        else {
            continue;
        };
        if *name == "total" || BY_CHANCE.contains(name) {
            continue;
        }
        let errors = match words.len() {
            6 => words[4].parse().expect("a number"),
            _ => 0,
        };
        calls.insert((*name).to_owned(), (hits, errors));
    }
    calls
}

#[test]
fn a_filter_counts_calls_that_move_bytes_and_no_others() {
    let home = TempDir::new();
    let Some(program) = compile(&home, "known", &[]) else {
        return;
    };
    let program = program.display().to_string();
    let options = [
        "-s",
        "--method",
        "seccomp",
        "--io-only",
        "--report",
        "report.json",
        "--",
    ];
    let args = [&options[..], &[&program]].concat();
    let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
    assert_eq!(finished.code(), Some(42), "{finished}");
    let calls = read_report(&home.join("report.json"));
    assert_eq!(calls["write"], [ROUNDS, 7 * ROUNDS, 0]);
    assert_eq!(calls["writev"], [ROUNDS, 7 * ROUNDS, 0]);
    assert_eq!(calls["read"][2], ROUNDS);
    assert!(
        !calls.contains_key("getppid") && !calls.contains_key("openat"),
        "{calls:?}"
    );
    for args in [
        ["-s", "--io-only", "--", "true"],
        ["-s", "--method=seccomp", "--", "true"],
    ] {
        let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
        assert_eq!(finished.code(), Some(2), "{finished}");
    }
}

/// Without any permission the program still runs.
#[test]
fn without_permission_the_program_runs_uncounted() {
    let Some(setpriv) = need("setpriv") else {
        return;
    };
    let home = TempDir::new();
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to drop capabilities").is_none() {
        return;
    }
    let mut command = Command::new(setpriv);
    command.args([
        "--bounding-set=-bpf,-perfmon,-sys_admin,-sys_ptrace",
        "--inh-caps=-all",
    ]);
    command.arg(crate::PEGEL.path());
    command.args([
        "run", "-v", "-s", "--method", "ebpf", "--", "sh", "-c", "exit 3",
    ]);
    isolate(&mut command, &home);
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.code(), Some(3), "{finished}");
    assert!(
        finished.stderr.contains("eBPF is not available"),
        "{finished}"
    );
    assert!(finished.stderr.contains("counted by ptrace"), "{finished}");
    // A process for which all tracing is denied.
    let mut command = pegel(
        &home,
        &["-v", "-s", "--method", "ptrace", "--", "sh", "-c", "exit 4"],
    );
    forbid_ptrace(&mut command, None);
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.code(), Some(4), "{finished}");
    assert!(
        finished.stderr.contains("does not permit ptrace"),
        "{finished}"
    );
}

/// Kernels before 5.3 lack PTRACE_GET_SYSCALL_INFO.
#[test]
fn an_old_kernel_counts_the_same() {
    let home = TempDir::new();
    let Some(program) = compile(&home, "known", &[]) else {
        return;
    };
    const GET_SYSCALL_INFO: u32 = 0x420e;
    let program = program.display().to_string();
    let options = ["-s", "--method", "ptrace", "--report", "report.json", "--"];
    let mut command = pegel(&home, &[&options[..], &[&program]].concat());
    forbid_ptrace(&mut command, Some(GET_SYSCALL_INFO));
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.code(), Some(42), "{finished}");
    let old = read_report(&home.join("report.json"));
    let new = report(RunMode::Ptrace, &home, &[&program]);
    let certain = |calls: BTreeMap<String, [u64; 3]>| -> BTreeMap<String, [u64; 3]> {
        let is_certain = |name: &str| !BY_CHANCE.contains(&name);
        calls
            .into_iter()
            .filter(|(name, _)| is_certain(name))
            .collect()
    };
    assert_eq!(certain(old), certain(new));
}

#[repr(C)]
struct BpfInstruction(u16, u8, u8, u32);

/// Installs a seccomp filter, as containers do, under which ptrace or one of its requests fails.
fn forbid_ptrace(command: &mut Command, request: Option<u32>) {
    use std::os::unix::process::CommandExt;
    #[repr(C)]
    struct BpfProgram(u16, *const BpfInstruction);
    const PTRACE: u32 = if cfg!(target_arch = "aarch64") {
        117
    } else {
        101
    };
    // Compares the call's number, then its first argument for a single request.
    let is_all = u8::from(request.is_none());
    let steps: &'static [BpfInstruction; 6] = Box::leak(Box::new([
        BpfInstruction(0x20, 0, 0, 0),
        BpfInstruction(0x15, 0, 3, PTRACE),
        BpfInstruction(0x20, 0, 0, 16),
        BpfInstruction(0x15, is_all, 1 - is_all, request.unwrap_or(u32::MAX)),
        BpfInstruction(0x06, 0, 0, 0x0005_0001),
        BpfInstruction(0x06, 0, 0, 0x7fff_0000),
    ]));
    let install = move || {
        let filter = BpfProgram(steps.len() as u16, steps.as_ptr());
        // SAFETY: the filter outlives the call, and its length is that of the array; the kernel
        // copies it.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter)
        };
        match done {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes two system calls only, which are async-signal-safe after fork.
    unsafe { command.pre_exec(install) };
}
