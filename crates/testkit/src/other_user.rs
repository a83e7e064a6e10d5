//! Runs code as another user.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::{ChildProcess, FinishedProcess, need, need_hardware};

/// Another user of this machine.
#[derive(Debug, Clone, Copy)]
pub struct OtherUser;

impl OtherUser {
    /// `nobody` on every Linux system.
    pub const UID: u32 = 65534;
    pub const NAME: &str = "nobody";

    /// Returns None, with the skip recorded, if the test cannot act as another user.
    #[track_caller]
    pub fn new() -> Option<OtherUser> {
        need("curl")?;
        let is_root = rustix::process::geteuid().is_root();
        need_hardware(is_root, "root privilege to act as another user")?;
        Some(OtherUser)
    }

    /// Runs a program as this user, without any of our groups and environment variables.
    pub fn run(self, program: impl AsRef<Path>, args: &[&str]) -> FinishedProcess {
        let mut command = Command::new(program.as_ref());
        command
            .uid(OtherUser::UID)
            .gid(OtherUser::UID)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir("/")
            .args(args);
        ChildProcess::start(&mut command).wait(Duration::from_secs(30))
    }

    /// Runs `work` as this user, on a separate thread.
    pub fn run_as<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let acting = scope.spawn(move || {
                // On Linux, credentials are per thread.
                set_thread_groups(&[]).expect("root");
                set_thread_gid(Gid::from_raw(OtherUser::UID)).expect("root");
                set_thread_uid(Uid::from_raw(OtherUser::UID)).expect("root");
                work()
            });
            acting
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Returns the status of the HTTP response (0 if there is none), and all output of curl.
    pub fn curl(self, args: &[&str]) -> (u16, String) {
        curl_result(self.run("curl", &[CURL, args].concat()))
    }
}

/// Like [`OtherUser::curl`], as the current user.
pub fn curl(args: &[&str]) -> (u16, String) {
    let mut command = Command::new("curl");
    command.args([CURL, args].concat());
    curl_result(ChildProcess::start(&mut command).wait(Duration::from_secs(30)))
}

/// Prints headers too, and the status last; ignores the caller's configuration.
const CURL: &[&str] = &[
    "--disable",
    "--noproxy",
    "*",
    "--silent",
    "--show-error",
    "--include",
    "--max-time",
    "20",
    "--write-out",
    "\n%{http_code}",
];

fn curl_result(finished: FinishedProcess) -> (u16, String) {
    let status = finished
        .stdout
        .rsplit('\n')
        .next()
        .and_then(|code| code.parse().ok());
    (status.unwrap_or(0), finished.to_string())
}
