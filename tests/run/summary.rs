//! The summary and the report at the end of a run.

use std::path::Path;

use pegel_testkit::{ChildProcess, OtherUser, TempDir, eventually, set_mode};
use serde_json::Value;

use crate::PEGEL;
use crate::run_mode::{BOUND, RunMode, compile, pegel};

fn report(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

/// Returns the options of a way of counting.
fn options(way: RunMode) -> Vec<&'static str> {
    match way {
        RunMode::Ptrace => vec!["-s", "--method", "ptrace"],
        RunMode::Ebpf => vec!["-s", "--method", "ebpf"],
        RunMode::Plain | RunMode::Wrapped => Vec::new(),
    }
}

#[test]
fn cpu_time_and_memory_are_those_that_the_kernel_accounts() {
    let home = TempDir::new();
    let Some(program) = compile(&home, "uses", &[]) else {
        return;
    };
    let program = program.display().to_string();
    for way in RunMode::with_held_exit() {
        let args = [&options(way)[..], &["--report", "r.json", "--", &program]].concat();
        let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
        assert_eq!((finished.code(), finished.stderr.as_str()), (Some(0), ""));
        let numbers: Vec<f64> = (finished.stdout.split_whitespace())
            .map(|word| word.parse().expect("a number"))
            .collect();
        let report = report(&home.join("r.json"));
        let seconds = |key: &str| report["cpu"][key].as_f64().expect("a number");
        let cpu = seconds("user_seconds") + seconds("system_seconds");
        // The start and the end of the process are not in its own measurement.
        let own = numbers[0] / 1e6;
        assert!(
            (own..own + 0.5).contains(&(cpu + 0.02)),
            "{way:?}: {cpu} s, not {own} s"
        );
        let peak = report["memory"]["peak_bytes"].as_u64().expect("a number");
        let own = 1024.0 * numbers[1];
        assert!(
            (own..own + 8e6).contains(&(peak as f64 + 1e6)),
            "{way:?}: {peak}, not {own}"
        );
        assert_eq!(report["exit_code"], 0, "{way:?}");
        assert_eq!(report["mpi"], Value::Null);
        assert!(report["seconds"].as_f64().expect("a number") > 0.3);
    }
}

#[test]
fn io_includes_children_and_what_reached_storage() {
    let home = TempDir::new();
    // Each of head and cat reads and writes them all.
    let script = "head -c 3000000 /dev/zero > data; cat data > /dev/null; wc -c < data";
    for way in RunMode::with_held_exit() {
        let args = [
            &options(way)[..],
            &["--report", "r.json", "--", "sh", "-c", script],
        ]
        .concat();
        let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
        assert_eq!(finished.stdout, "3000000\n", "{finished}");
        let io = &report(&home.join("r.json"))["io"];
        let number = |key: &str| io[key].as_u64().expect("a number");
        // Without privileges, the last bytes of children may not be readable.
        let least = match rustix::process::geteuid().is_root() {
            true => 6_000_000,
            false => 3_000_000,
        };
        let expected = least..7_000_000;
        assert!(expected.contains(&number("bytes_written")), "{way:?}: {io}");
        assert!(expected.contains(&number("bytes_read")), "{way:?}: {io}");
        assert!(
            number("storage_bytes_written") <= 4_000_000,
            "{way:?}: {io}"
        );
    }
}

#[test]
fn a_summary_is_printed_when_requested_and_status_and_output_are_the_programs() {
    let home = TempDir::new();
    for way in RunMode::with_held_exit() {
        let run = |more: &[&str], variable: &str, script: &str| {
            let args = [&options(way)[..], more, &["--", "sh", "-c", script]].concat();
            let mut command = pegel(&home, &args);
            command.env("PEGEL_SUMMARY", variable);
            ChildProcess::start(&mut command).wait(BOUND)
        };
        let unasked = run(&[], "", "echo out; exit 3");
        assert_eq!((unasked.code(), unasked.stderr.as_str()), (Some(3), ""));
        for finished in [
            run(&["--summary"], "", "echo out; exit 3"),
            run(&[], "1", "echo out; exit 3"),
        ] {
            assert_eq!(
                (finished.code(), finished.stdout.as_str()),
                (Some(3), "out\n")
            );
            let lines: Vec<&str> = finished.stderr.lines().collect();
            assert!(lines[0].starts_with("pegel: sh: 0."), "{way:?}: {finished}");
            assert!(lines[0].ends_with(" s; exited with status 3"), "{finished}");
            let has = |words: &str| lines.iter().any(|line| line.contains(words));
            assert!(
                has("  CPU     ") && has("  I/O     "),
                "{way:?}: {finished}"
            );
            assert_eq!(
                has(" system calls in "),
                way != RunMode::Wrapped,
                "{finished}"
            );
        }
        use std::os::unix::process::ExitStatusExt;
        let killed = run(&["--summary"], "", "kill -TERM $$");
        assert_eq!(killed.status.signal(), Some(15), "{way:?}: {killed}");
        assert!(
            killed.stderr.contains("; killed by SIGTERM\n"),
            "{way:?}: {killed}"
        );
        let quiet = run(&["--quiet"], "1", "exit 3");
        assert_eq!((quiet.code(), quiet.stderr.as_str()), (Some(3), ""));
    }
    let both = ["--quiet", "--summary", "--", "true"];
    let refused = ChildProcess::start(&mut pegel(&home, &both)).wait(BOUND);
    assert_eq!(refused.code(), Some(2), "{refused}");
}

#[test]
fn a_summary_is_appended_to_its_file() {
    let home = TempDir::new();
    let path = home.join("summary.txt");
    std::fs::write(&path, "before\n").expect("written");
    for way in RunMode::with_held_exit() {
        let args = [
            &options(way)[..],
            &["--summary=summary.txt", "--", "sh", "-c", "cd /"],
        ]
        .concat();
        let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
        assert_eq!((finished.code(), finished.stderr.as_str()), (Some(0), ""));
    }
    let text = std::fs::read_to_string(&path).expect("there");
    assert!(text.starts_with("before\npegel: sh: "), "{text}");
    assert_eq!(
        text.matches("pegel: sh: ").count(),
        RunMode::with_held_exit().len(),
        "{text}"
    );
}

#[test]
fn a_summary_that_cannot_be_written_does_not_change_the_program() {
    let home = TempDir::new();
    for way in RunMode::with_held_exit() {
        for place in ["--summary=/proc/no/such", "--report=/proc/no/such"] {
            let args = [
                &options(way)[..],
                &[place, "--", "sh", "-c", "echo out; exit 4"],
            ]
            .concat();
            let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
            assert_eq!(
                (finished.code(), finished.stdout.as_str()),
                (Some(4), "out\n")
            );
            assert!(
                finished.stderr.starts_with("pegel: cannot write "),
                "{finished}"
            );
            assert!(finished.stderr.contains("/proc/no/such"), "{finished}");
            assert_eq!(finished.stderr.lines().count(), 1, "{finished}");
        }
    }
}

#[test]
fn a_command_that_cannot_be_run_has_no_summary() {
    let home = TempDir::new();
    for way in RunMode::wrapped() {
        let args = [&options(way)[..], &["--summary", "--", "/no/such/command"]].concat();
        let finished = ChildProcess::start(&mut pegel(&home, &args)).wait(BOUND);
        assert_eq!(finished.code(), Some(127), "{finished}");
        assert_eq!(finished.stderr.lines().count(), 1, "{way:?}: {finished}");
    }
}

/// Without CAP_SYS_PTRACE the exit cannot be held: the report is written some milliseconds later.
#[test]
fn an_unprivileged_user_has_a_summary_too() {
    use std::os::unix::process::CommandExt;
    if OtherUser::new().is_none() {
        return;
    }
    let home = TempDir::new();
    set_mode(home.path(), 0o1777);
    let binary = home.join("pegel");
    PEGEL.copy_to(&binary);
    set_mode(&binary, 0o755);
    let own = home.join("own");
    std::fs::create_dir(&own).expect("made");
    set_mode(&own, 0o777);
    let mut command = std::process::Command::new(&binary);
    pegel_testkit::isolate(&mut command, &own);
    let runtime = own.join("runtime");
    set_mode(own.join("lanes"), 0o777);
    command
        .args(["run", "--report", "r.json", "--summary=s.txt", "--"])
        .args([
            "sh",
            "-c",
            "x=0; while [ $x -lt 300000 ]; do x=$((x+1)); done; exit 3",
        ])
        .env("XDG_RUNTIME_DIR", &runtime)
        .uid(OtherUser::UID)
        .gid(OtherUser::UID);
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!((finished.code(), finished.stderr.as_str()), (Some(3), ""));
    let text = eventually("the summary", || {
        let text = std::fs::read_to_string(own.join("s.txt")).unwrap_or_default();
        text.contains("  I/O ").then_some(text.clone()).ok_or(text)
    });
    assert!(text.starts_with("pegel: sh: "), "{text}");
    let report = report(&own.join("r.json"));
    let cpu = report["cpu"]["user_seconds"].as_f64().expect("a number");
    let wall = report["seconds"].as_f64().expect("a number");
    assert!(cpu > 0.0 && cpu <= wall + 0.05, "{report}");
    assert!(
        report["memory"]["peak_bytes"]
            .as_u64()
            .is_some_and(|peak| peak > 100_000)
    );
}
