//! The wrapper: its counts reach the proxy, and the client reads them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use pegel_testkit::{ChildProcess, OtherUser, REPOSITORY, eventually, need, need_hardware};
use rustix::process::Signal;

use super::user::{BOUND, TauUser};

const EXEC: &str = "tau_metric_proxy_run_total{operation=\"exec\"}";

fn hits(call: &str) -> String {
    format!("strace_hits_total{{scall=\"{call}\"}}")
}

#[test]
fn counts_of_a_wrapped_program_reach_the_proxy() {
    let Some(user) = TauUser::new() else {
        return;
    };
    let run = |args: &[&str]| user.run("tau_metric_proxy_run", args);
    // The program also runs without a proxy.
    let finished = run(&["-s", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(finished.code(), Some(7), "{finished}");
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("out\n", "err\n")
    );

    let proxy = user.proxy(&[]);
    assert_eq!(user.value(&[], &hits("execve")), None);
    let finished = run(&["-s", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(finished.code(), Some(7), "{finished}");
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("out\n", "err\n")
    );
    // The wrapper finds the proxy by its symlink, and gets the directory of lanes from it.
    assert_eq!(user.value(&[], &hits("execve")), Some(1.0));
    assert_eq!(user.value(&[], &hits("write")), Some(2.0));
    let bytes = "strace_size_total{scall=\"write\"}";
    assert_eq!(user.value(&[], bytes), Some(8.0));
    assert_eq!(user.value(&[], EXEC), Some(1.0));

    // Without options only the run is counted; options after the command belong to the command.
    assert_eq!(run(&["printf", "%s", "-s"]).stdout, "-s");
    assert_eq!(run(&["--", "false"]).code(), Some(1));
    assert_eq!(run(&["-sv", "--", "no-such-command"]).code(), Some(127));
    assert_eq!(user.value(&[], EXEC), Some(4.0));
    assert_eq!(user.value(&[], &hits("execve")), Some(1.0));

    let finished = run(&["-v", "-s", "--", "true"]);
    assert_eq!((finished.code(), finished.stdout.as_str()), (Some(0), ""));
    assert!(
        finished.stderr.contains("system calls are counted by"),
        "{finished}"
    );
    assert_eq!(user.value(&[], &hits("execve")), Some(2.0));
    drop(proxy);
}

#[test]
fn another_proxy_is_reached_by_its_socket() {
    let Some(user) = TauUser::new() else {
        return;
    };
    let usual = user.proxy(&[]);
    let other = user.home.join("other");
    let lanes = other.join("lanes");
    user.make_dir(&other);
    user.make_dir(&lanes);
    let _second = user.proxy(&[
        ("XDG_RUNTIME_DIR", &other),
        ("PEGEL_DIR", &other.join("store")),
        ("PEGEL_LANES", &lanes),
        ("PEGEL_LISTEN", Path::new("127.0.0.1:0")),
    ]);
    let socket = other.join("pegel/push.sock").display().to_string();
    let there = ["-u", socket.as_str()];
    let args = [&there[..], &["-s", "--", "sh", "-c", "echo some words"]].concat();
    assert_eq!(
        user.run("tau_metric_proxy_run", &args).stdout,
        "some words\n"
    );
    assert_eq!(user.value(&there, &hits("write")), Some(1.0));
    assert_eq!(user.value(&there, EXEC), Some(1.0));
    assert_eq!(user.value(&[], EXEC), None);
    // The program also runs if the proxy does not respond.
    drop(usual);
    let nowhere = user.home.join("nowhere").display().to_string();
    let finished = user.run(
        "tau_metric_proxy_run",
        &["-v", "-u", &nowhere, "-s", "--", "true"],
    );
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert!(
        finished.stderr.contains("no agent is listening on"),
        "{finished}"
    );
}

#[test]
fn mpi_calls_reach_the_proxy() {
    let (Some(user), Some(mpicc)) = (TauUser::new(), need("mpicc.mpich")) else {
        return;
    };
    let source = Path::new(REPOSITORY).join("tests/run/mpi/plain.c");
    let program = user.home.join("plain");
    let compiled = Command::new(mpicc)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    assert!(compiled.expect("the compiler starts").success());
    let _proxy = user.proxy(&[]);
    let program = program.display().to_string();
    let finished = user.run("tau_metric_proxy_run", &["-m", "-s", "--", &program]);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!(finished.stdout, "1 ranks, sum 1, MPI_COMM_WORLD\n");
    let of =
        |name: &str, call: &str| user.value(&[], &format!("mpi_{name}_total{{call=\"{call}\"}}"));
    assert_eq!(of("hits", "MPI_Send"), Some(10.0));
    assert_eq!(of("size", "MPI_Send"), Some(80.0));
    assert_eq!(of("hits", "MPI_Finalize"), Some(1.0));
    assert_eq!(user.value(&[], &hits("execve")), Some(1.0));
}

#[test]
fn a_running_process_is_counted_until_an_interrupt() {
    let (Some(user), Some(_)) = (TauUser::new(), OtherUser::new()) else {
        return;
    };
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_open = matches!(scope.trim(), "" | "0");
    if need_hardware(is_open, "permission to trace a user's other processes").is_none() {
        return;
    }
    let _proxy = user.proxy(&[]);
    let script = "while :; do echo x >/dev/null; sleep 0.01; done";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .uid(user.uid)
        .gid(user.uid)
        .current_dir("/");
    let mut target = ChildProcess::start(&mut command);
    let pid = target.pid().to_string();
    // -m and a command are ignored with -S.
    let args = ["-m", "-v", "-S", &pid, "--", "false"];
    let watcher = user.start(user.command("tau_metric_proxy_run", &args));
    eventually("it counts", || {
        let count = user.value(&[], &hits("write"));
        count
            .filter(|count| *count > 5.0)
            .ok_or_else(|| watcher.output())
    });
    watcher.signal(Signal::INT);
    let finished = watcher.wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert!(!target.has_ended());
    assert_eq!(user.value(&[], EXEC), None, "nothing was started");
    let finished = user.run("tau_metric_proxy_run", &["-S", "1"]);
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(finished.stderr.contains("belongs to user 0"), "{finished}");
}
