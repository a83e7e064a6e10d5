//! The same program with and without the wrapper: exit status, output, environment and everything
//! else it can observe.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, eventually, need_hardware};

use crate::run_mode::{BOUND, RunMode, compile, isolate, pegel};

/// The observable result of a run.
#[derive(Debug, PartialEq, Eq)]
struct RunResult {
    status: std::process::ExitStatus,
    stdout: String,
    stderr: String,
}

fn run_result(finished: FinishedProcess) -> RunResult {
    RunResult {
        status: finished.status,
        stdout: finished.stdout,
        stderr: finished.stderr,
    }
}

/// Runs the command in all ways, one after another in the same directory, and compares.
#[track_caller]
fn assert_same(argv: &[&str]) -> RunResult {
    let home = TempDir::new();
    let run =
        |way: RunMode| run_result(ChildProcess::start(&mut way.command(&home, argv)).wait(BOUND));
    let plain = run(RunMode::Plain);
    for way in RunMode::wrapped() {
        assert_eq!(run(way), plain, "{way:?}: {argv:?}");
    }
    plain
}

#[test]
fn exit_codes_are_the_programs_own() {
    for code in [0, 1, 7, 126, 127, 128, 255] {
        let seen = assert_same(&["sh", "-c", &format!("echo out; echo err >&2; exit {code}")]);
        assert_eq!(seen.status.code(), Some(code));
    }
    // Many more, as seen by a shell.
    let home = TempDir::new();
    for way in RunMode::wrapped() {
        let words = way.prefix().join(" ");
        let script =
            format!("for code in $(seq 3 12 255); do {words} sh -c \"exit $code\"; echo $?; done");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        isolate(&mut command, &home);
        let codes: Vec<String> = (3..=255)
            .step_by(12)
            .map(|code| format!("{code}\n"))
            .collect();
        assert_eq!(
            ChildProcess::start(&mut command).wait(BOUND).stdout,
            codes.concat(),
            "{way:?}"
        );
    }
}

#[test]
fn signals_end_the_program_as_without_the_wrapper() {
    // Without those that stop or do nothing; with some real-time signals.
    let named = (1..=31).filter(|signal| ![17, 18, 19, 20, 21, 22, 23, 28].contains(signal));
    for signal in named.chain([34, 35, 50, 63, 64]) {
        // Under nohup SIGHUP is ignored, and children inherit that.
        if is_ignored(signal) {
            continue;
        }
        let script = format!("ulimit -c 0; kill -{signal} $$; sleep 5");
        let seen = assert_same(&["sh", "-c", &script]);
        assert_eq!(seen.status.signal(), Some(signal));
    }
}

#[test]
fn ignored_signals_have_no_effect() {
    let script = "for signal in CHLD CONT URG WINCH; do kill -$signal $$; done; echo alive";
    assert_eq!(assert_same(&["sh", "-c", script]).stdout, "alive\n");
}

#[test]
fn core_dumps_are_written_as_without_the_wrapper() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let is_here = !pattern.starts_with(['|', '/', '@']) && !pattern.trim().is_empty();
    if need_hardware(is_here, "core files in the directory of the program").is_none() {
        return;
    }
    for signal in ["QUIT", "ABRT", "SEGV", "SYS"] {
        let run = |way: RunMode| {
            let home = TempDir::new();
            let script = format!("ulimit -c unlimited; kill -{signal} $$");
            let finished =
                ChildProcess::start(&mut way.command(&home, &["sh", "-c", &script])).wait(BOUND);
            let files = fs::read_dir(home.path()).expect("ours").flatten();
            let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
            let cores = names.filter(|name| name.starts_with("core")).count();
            (finished.status, finished.status.core_dumped(), cores)
        };
        let plain = run(RunMode::Plain);
        assert!(plain.1 && plain.2 == 1, "{signal}: {plain:?}");
        for way in RunMode::wrapped() {
            assert_eq!(run(way), plain, "{way:?} {signal}");
        }
    }
}

/// The parent sees each stop and the exit.
#[test]
fn signals_that_stop_the_program_stop_it() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    for way in [vec![RunMode::Plain], RunMode::wrapped()].concat() {
        for signal in [Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU] {
            let home = TempDir::new();
            let script = format!("kill -{} $$; exit 7", signal.as_raw());
            let mut command = way.command(&home, &["sh", "-c", &script]);
            // In an orphaned process group, only SIGSTOP stops a process.
            let mut child = command.process_group(0).spawn().expect("started");
            let pid = Pid::from_child(&child);
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED)
                .expect("ours")
                .expect("news");
            assert_eq!(
                status.stopping_signal(),
                Some(signal.as_raw()),
                "{way:?}: {status:?}"
            );
            kill_process(pid, Signal::CONT).expect("ours");
            let status = child.wait().expect("ours");
            assert_eq!(status.code(), Some(7), "{way:?} {signal:?}: {status:?}");
        }
    }
}

#[test]
fn signal_handlers_of_the_program_are_called() {
    let script = "trap 'echo got it; exit 3' TERM; kill -TERM $$; sleep 5";
    let seen = assert_same(&["sh", "-c", script]);
    assert_eq!(
        (seen.stdout.as_str(), seen.status.code()),
        ("got it\n", Some(3))
    );
}

#[test]
fn a_signal_from_outside_reaches_the_program() {
    for way in RunMode::wrapped() {
        let home = TempDir::new();
        let script = "trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 0.05; done";
        let process = ChildProcess::start(&mut way.command(&home, &["sh", "-c", script]));
        eventually("it is ready", || match process.stdout().as_str() {
            "ready\n" => Ok(()),
            _ => Err((way, process.output())),
        });
        process.signal(rustix::process::Signal::USR1);
        let finished = process.wait(BOUND);
        assert_eq!(finished.stdout, "ready\ngot it\n", "{way:?}");
        assert_eq!(finished.code(), Some(3));
    }
}

#[test]
fn the_program_observes_the_same_process_attributes() {
    // The process ID differs from run to run, and the tracer cannot be hidden.
    let status = "exec grep -E '^(Umask|PPid|Uid|Gid|Groups|SigPnd|SigBlk|SigIgn|SigCgt|Shd|Cap|NoNewPrivs|Seccomp|Threads|Cpus_allowed)' /proc/self/status";
    for script in [
        "env | sort",
        "pwd; ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> \\([a-z/]*\\).*/\\1 \\2/p' | grep -v proc",
        "cat /proc/self/limits",
        "cut -d' ' -f4,5 /proc/$$/stat | wc -w; ps -o ppid=,pgid=,sess=,tty=,nice= -p $$ | awk '{print $1, $3, $4, $5}'",
        "wait; echo $?; echo $PPID",
        "cat /proc/self/cgroup; ulimit -a",
        "cat /proc/self/oom_score_adj; cat /proc/self/timerslack_ns; cat /proc/self/comm",
    ] {
        assert_same(&["sh", "-c", script]);
    }
    assert_same(&["sh", "-c", status]);
    // Without a shell in between, which would change some attributes.
    assert_same(&[
        "grep",
        "-E",
        "^(SigPnd|SigBlk|SigIgn|SigCgt|Shd|PPid|Umask|NoNewPrivs|Seccomp)",
        "/proc/self/status",
    ]);
    assert_same(&["env"]);
}

#[test]
fn arguments_are_passed_unchanged() {
    let seen = assert_same(&["printf", "<%s>", "", "a b", "--", "-s", "*", "ü\n", "$HOME"]);
    assert_eq!(seen.stdout, "<><a b><--><-s><*><ü\n><$HOME>");
}

#[test]
fn remaining_children_do_not_hold_the_callers_pipes() {
    for way in RunMode::wrapped() {
        let home = TempDir::new();
        let script = "sleep 100 </dev/null >/dev/null 2>&1 & echo $!";
        let mut command = way.command(&home, &["sh", "-c", script]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut text = String::new();
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        out.read_to_string(&mut text).expect("read to the end");
        err.read_to_string(&mut String::new())
            .expect("read to the end");
        assert!(child.wait().expect("ended").success());
        // The pipes were closed before the end of the child, which still exists.
        let sleeper: i32 = text.trim().parse().expect("a number");
        let sleeper = rustix::process::Pid::from_raw(sleeper).expect("a number");
        let killed = rustix::process::kill_process(sleeper, rustix::process::Signal::KILL);
        assert_eq!(killed, Ok(()), "{way:?}: it goes on");
    }
}

#[test]
fn every_test_program_behaves_the_same() {
    let home = TempDir::new();
    for (name, more) in [
        ("forks", &[][..]),
        ("threads", &[]),
        ("signals", &[]),
        ("spawns", &[]),
        ("exec_from_thread", &[]),
        ("no_children", &[]),
        ("stops", &[]),
        ("leader_leaves", &[]),
        ("static", &["-static"]),
    ] {
        let Some(program) = compile(&home, name, more) else {
            return;
        };
        let program = program.display().to_string();
        let seen = assert_same(&[&program]);
        assert_eq!(seen.status.code(), Some(42), "{name}: {seen:?}");
    }
}

#[test]
fn a_command_that_cannot_run_exits_as_in_a_shell() {
    let home = TempDir::new();
    fs::write(home.join("plain"), "text").expect("written");
    for (command, code, words) in [
        ("no-such-command", 127, "No such file or directory"),
        ("./no/such/file", 127, "No such file or directory"),
        ("./plain", 126, "Permission denied"),
        (".", 126, "Permission denied"),
    ] {
        for options in [&[][..], &["-s"], &["-s", "--method", "ptrace"]] {
            let args = [options, &["--", command]].concat();
            let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
            assert_eq!(finished.code(), Some(code), "{args:?}: {finished}");
            assert_eq!(finished.stdout, "");
            let line = format!("pegel: cannot run {command}: {words}");
            assert!(finished.stderr.starts_with(&line), "{finished}");
            assert_eq!(finished.stderr.lines().count(), 1, "{finished}");
        }
    }
    // An unknown option is not a command.
    for args in [
        &["-s"][..],
        &["--bogus", "--", "true"],
        &["-s", "-x", "true"],
    ] {
        let finished = ChildProcess::start(&mut pegel(&home, args)).wait(BOUND);
        assert_eq!(finished.code(), Some(2), "{args:?}: {finished}");
    }
}

#[test]
fn messages_are_printed_only_with_v() {
    let home = TempDir::new();
    let run = |args: &[&str]| ChildProcess::start(&mut pegel(&home, args)).wait(BOUND);
    let finished = run(&[
        "-v", "-s", "--method", "ptrace", "-j", "job 7", "--", "true",
    ]);
    for words in [
        "pegel: job job 7",
        "counted by ptrace\n",
        " system calls in ",
    ] {
        assert!(finished.stderr.contains(words), "{words}: {finished}");
    }
    assert_eq!(finished.stdout, "");
    let finished = run(&["-m", "-v", "--", "true"]);
    assert!(finished.stderr.contains("MPI calls are "), "{finished}");
    let finished = run(&["-m", "-s", "--", "true"]);
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("", "")
    );
    let mut disabled = pegel(&home, &["-v", "-s", "-m", "--", "true"]);
    disabled.env("PEGEL_DISABLE", "1");
    let finished = ChildProcess::start(&mut disabled).wait(BOUND);
    assert!(
        finished.stderr.contains("PEGEL_DISABLE is set"),
        "{finished}"
    );
    assert_eq!(finished.code(), Some(0));
}

/// Returns whether this process, and thus every program that it starts, ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.expect("there").trim(), 16).expect("a mask");
    mask >> (signal - 1) & 1 == 1
}
