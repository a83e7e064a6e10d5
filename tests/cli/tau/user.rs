//! A user account with TAU's programs only.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pegel_testkit::{
    ChildProcess, FinishedProcess, NetworkNamespace, TempDir, eventually, need_hardware, set_mode,
};
use serde_json::Value;

use crate::PEGEL;

pub(super) const BOUND: Duration = Duration::from_secs(60);
/// The proxy's HTTP address.
pub(super) const HTTP: &str = "127.0.0.1:1337";

/// A user of those programs. The symlink is unique per user and the port per machine, so that each
/// test has its own user and network namespace.
pub(super) struct TauUser {
    pub network: NetworkNamespace,
    pub uid: u32,
    pub home: TempDir,
}

impl TauUser {
    #[track_caller]
    pub(super) fn new() -> Option<TauUser> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let is_root = rustix::process::geteuid().is_root();
        need_hardware(is_root, "root privilege to act for other users")?;
        let network = NetworkNamespace::new()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let uid = 400_000_000 + std::process::id() * 16 + number;
        let home = TempDir::new();
        let bin = home.join("bin");
        fs::create_dir(&bin).expect("made");
        PEGEL.copy_to(&bin.join("pegel"));
        set_mode(bin.join("pegel"), 0o755);
        for name in [
            "tau_metric_proxy",
            "tau_metric_proxy_run",
            "tau_metric_client",
        ] {
            symlink("pegel", bin.join(name)).expect("a link");
        }
        chown(home.path(), Some(uid), Some(uid)).expect("given");
        Some(TauUser { network, uid, home })
    }

    /// Returns a command for one of the programs, in the user's home.
    pub(super) fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.home.join("bin").join(name));
        command
            .args(args)
            .env_clear()
            // Only directories that the user can read.
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("TMPDIR", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.path())
            .env("PEGEL_IMDS_URL", "none")
            .uid(self.uid)
            .gid(self.uid)
            .current_dir(self.home.path());
        command
    }

    pub(super) fn start(&self, mut command: Command) -> ChildProcess {
        self.network
            .run_inside(|| ChildProcess::start(&mut command))
    }

    pub(super) fn run(&self, name: &str, args: &[&str]) -> FinishedProcess {
        self.start(self.command(name, args)).wait(BOUND)
    }

    /// Starts a proxy with its own lanes, and waits for its startup messages.
    pub(super) fn proxy(&self, variables: &[(&str, &Path)]) -> ChildProcess {
        let lanes = self.home.join("lanes");
        if !lanes.exists() {
            self.make_dir(&lanes);
        }
        let mut command = self.command("tau_metric_proxy", &[]);
        command
            .env("PEGEL_LANES", lanes)
            .envs(variables.iter().copied());
        let mut process = self.start(command);
        eventually("its first lines", || {
            assert!(!process.has_ended(), "it ended: {}", process.output());
            let lines = process.stderr().lines().count();
            (lines >= 2).then_some(()).ok_or_else(|| process.output())
        });
        process
    }

    /// Creates a directory owned by the user.
    pub(super) fn make_dir(&self, path: &Path) {
        fs::create_dir(path).expect("made");
        chown(path, Some(self.uid), Some(self.uid)).expect("given");
    }

    pub(super) fn link(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/tau_metric_proxy.{}.unix", self.uid))
    }

    /// Returns the startup messages as in TAU's manual, with the bound address.
    pub(super) fn first_lines(&self, address: &str, socket: &Path) -> String {
        format!(
            "INFO (tau_metric_exporter_init:483): now listening on {address}\n\
             INFO (__bind_unix_socket:212): UNIX push gateway running on {}\n",
            socket.display()
        )
    }

    /// Returns a value, queried with `tau_metric_client`.
    pub(super) fn value(&self, args: &[&str], series: &str) -> Option<f64> {
        let finished = self.run(
            "tau_metric_client",
            &[args, &["-f", "json", "-g", series]].concat(),
        );
        if finished.code() == Some(4) {
            return None;
        }
        assert_eq!(finished.code(), Some(0), "{series}: {finished}");
        let values: Value = serde_json::from_str(&finished.stdout).expect("JSON");
        assert_eq!(values[0]["name"], series);
        values[0]["value"].as_f64()
    }
}

impl Drop for TauUser {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.link());
    }
}
