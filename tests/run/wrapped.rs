//! Programs with and without the wrapper.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{AgentProcess, TempDir, need};

pub const PEGEL: &str = env!("CARGO_BIN_EXE_pegel");
pub const BOUND: Duration = Duration::from_secs(60);

/// Ways to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Plain,
    /// Wrapped, but nothing is counted.
    Wrapped,
    Ptrace,
    Ebpf,
}

impl Way {
    /// All ways of counting that this machine allows.
    pub fn counting() -> Vec<Way> {
        let mut ways = vec![Way::Ptrace];
        if rustix::process::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists() {
            ways.push(Way::Ebpf);
        }
        ways
    }

    pub fn wrapped() -> Vec<Way> {
        let mut ways = vec![Way::Wrapped];
        ways.extend(Way::counting());
        ways
    }

    /// What stands before the command, with the binary in a place of one's choice.
    pub fn words_with(self, pegel: &Path) -> Vec<String> {
        let words: &[&str] = match self {
            Way::Plain => return Vec::new(),
            Way::Wrapped => &["run", "--"],
            Way::Ptrace => &["run", "-s", "--method", "ptrace", "--"],
            Way::Ebpf => &["run", "-s", "--method", "ebpf", "--"],
        };
        let pegel = pegel.display().to_string();
        let words = words.iter().map(|word| (*word).to_owned());
        std::iter::once(pegel).chain(words).collect()
    }

    pub fn words(self) -> Vec<String> {
        self.words_with(Path::new(PEGEL))
    }

    /// A command run this way, at home in a directory of its own.
    pub fn command(self, home: &TempDir, argv: &[&str]) -> Command {
        let words = self.words();
        let all: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .chain(argv.iter().copied())
            .collect();
        // By its path: for a name to look up, the standard library would start it in another way.
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

/// Neither the caller's agent nor the caller's lanes.
pub fn isolate(command: &mut Command, home: &TempDir) {
    let lanes = home.join("lanes");
    let _ = std::fs::create_dir(&lanes);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env("PEGEL_LANES", lanes)
        .current_dir(home.path());
    let default_signals = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            // SAFETY: no handler is involved.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // Tests that run in the background of a script ignore what the keyboard sends.
    // SAFETY: a few system calls between fork and exec.
    unsafe { command.pre_exec(default_signals) };
}

/// The binary where another user can reach it. By another program: a file that this one has open for writing cannot be
/// executed, and a test beside this one may start a process that holds it a moment longer.
pub fn copy_pegel(to: &Path) {
    let done = Command::new("cp").arg(PEGEL).arg(to).status();
    assert!(done.expect("cp starts").success());
}

/// `pegel run` with these arguments.
pub fn pegel<S: AsRef<OsStr>>(home: &TempDir, args: &[S]) -> Command {
    let mut command = Command::new(PEGEL);
    command.arg("run").args(args);
    isolate(&mut command, home);
    command
}

/// Compiles one of the small programs.
#[track_caller]
pub fn compile(home: &TempDir, name: &str, more: &[&str]) -> Option<PathBuf> {
    let cc = need("cc")?;
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/run/zoo/{name}.c"));
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

/// Hits, bytes and errors of each call in a report.
pub fn read_report(path: &Path) -> BTreeMap<String, [u64; 3]> {
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

/// The current value of a series at an agent; None if it has none.
pub fn value(agent: &AgentProcess, series: &str) -> Option<f64> {
    let text = agent.get("/metrics").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}
