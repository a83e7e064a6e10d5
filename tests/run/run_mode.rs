//! Helpers to run programs with and without the wrapper.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{AgentProcess, REPOSITORY, TempDir, need};

use crate::PEGEL;

pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// Ways to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMode {
    Plain,
    /// Wrapped without counting.
    Wrapped,
    Ptrace,
    Ebpf,
}

impl RunMode {
    /// Returns all methods of counting that this machine permits.
    pub(crate) fn counting() -> Vec<RunMode> {
        let mut ways = vec![RunMode::Ptrace];
        if rustix::process::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists() {
            ways.push(RunMode::Ebpf);
        }
        ways
    }

    pub(crate) fn wrapped() -> Vec<RunMode> {
        let mut ways = vec![RunMode::Wrapped];
        ways.extend(RunMode::counting());
        ways
    }

    /// Returns the ways in which the program's end waits until its summary is complete: without
    /// counting, that requires a privilege.
    pub(crate) fn with_held_exit() -> Vec<RunMode> {
        let mut ways = RunMode::wrapped();
        let may_hold = rustix::process::geteuid().is_root();
        ways.retain(|way| *way != RunMode::Wrapped || may_hold);
        ways
    }

    /// Returns the words before the command, for a binary at the given path.
    pub(crate) fn prefix_with(self, pegel: &Path) -> Vec<String> {
        let words: &[&str] = match self {
            RunMode::Plain => return Vec::new(),
            RunMode::Wrapped => &["run", "--"],
            RunMode::Ptrace => &["run", "-s", "--method", "ptrace", "--"],
            RunMode::Ebpf => &["run", "-s", "--method", "ebpf", "--"],
        };
        let pegel = pegel.display().to_string();
        let words = words.iter().map(|word| (*word).to_owned());
        std::iter::once(pegel).chain(words).collect()
    }

    pub(crate) fn prefix(self) -> Vec<String> {
        self.prefix_with(Path::new(PEGEL.path()))
    }

    /// Returns the command run this way, with `home` as its home directory.
    pub(crate) fn command(self, home: &TempDir, argv: &[&str]) -> Command {
        let words = self.prefix();
        let all: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .chain(argv.iter().copied())
            .collect();
        // By path: for a bare name, the standard library would start it in another way.
        let program = if all[0].contains('/') {
            PathBuf::from(all[0])
        } else {
            find(all[0])
        };
        let mut command = Command::new(program);
        command.arg0(all[0]).args(&all[1..]);
        isolate(&mut command, home);
        command
    }
}

fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join(program));
    found
        .find(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(program))
}

/// Isolates a command as [`pegel_testkit::isolate`] does, with default dispositions of signals.
pub(crate) fn isolate(command: &mut Command, home: &TempDir) {
    pegel_testkit::isolate(command, home);
    use_default_signals(command);
}

/// Tests in the background of a script ignore signals from the keyboard.
fn use_default_signals(command: &mut Command) {
    let default_signals = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            // SAFETY: sets the default disposition; no handler is installed.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes a few system calls only, which are async-signal-safe after fork.
    unsafe { command.pre_exec(default_signals) };
}

/// Returns `pegel run` with these arguments.
pub(crate) fn pegel<S: AsRef<OsStr>>(home: &TempDir, args: &[S]) -> Command {
    let mut command = PEGEL.command(home);
    command.arg("run").args(args);
    use_default_signals(&mut command);
    command
}

/// Compiles one of the test programs.
#[track_caller]
pub(crate) fn compile(home: &TempDir, name: &str, more: &[&str]) -> Option<PathBuf> {
    let cc = need("cc")?;
    let source = Path::new(REPOSITORY).join(format!("tests/run/programs/{name}.c"));
    let program = home.join(name);
    let done = Command::new(cc)
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .args(more)
        .output()
        .expect("the compiler starts");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}.c: {errors}");
    Some(program)
}

/// Parses hits, bytes and errors of each call from a report.
pub(crate) fn read_report(path: &Path) -> BTreeMap<String, [u64; 3]> {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let report: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let number = |call: &serde_json::Value, key: &str| call[key].as_u64().expect("a number");
    let calls = report["calls"].as_array().expect("a list");
    calls
        .iter()
        .map(|call| {
            let name = call["call"].as_str().expect("a name").to_owned();
            let counts = ["hits", "bytes", "errors"].map(|key| number(call, key));
            (name, counts)
        })
        .collect()
}

/// Returns the current value of a series at an agent.
pub(crate) fn value(agent: &AgentProcess, series: &str) -> Option<f64> {
    let text = agent.get("/metrics").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}
