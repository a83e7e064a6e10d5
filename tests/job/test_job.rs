//! A running `pegel job`, and what it leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, eventually};

use crate::PEGEL;
use crate::ssh_server::JOB_TIME;

/// A job whose agents have their directories below a directory of the test.
#[derive(Debug)]
pub(crate) struct TestJob {
    pub home: TempDir,
}

impl TestJob {
    pub(crate) fn new() -> TestJob {
        TestJob {
            home: TempDir::new(),
        }
    }

    /// Returns `pegel job` with these options; the command follows.
    pub(crate) fn command(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = PEGEL.command(&self.home);
        command.arg("job").arg("--dir").arg(self.home.path());
        command
            .args(["--timeout", "60s"])
            .args(options)
            .arg("--")
            .args(words);
        command.env_remove("PEGEL_LANES");
        command
    }

    pub(crate) fn start(&self, options: &[&str], words: &[&str]) -> ChildProcess {
        ChildProcess::start(&mut self.command(options, words))
    }

    pub(crate) fn run(&self, options: &[&str], words: &[&str]) -> FinishedProcess {
        self.start(options, words).wait(JOB_TIME)
    }

    /// Waits until the command wrote the file `started`, which all commands of these tests do.
    #[track_caller]
    pub(crate) fn wait_for_command(&self, job: &mut ChildProcess) {
        eventually("the command starts", || {
            assert!(!job.has_ended(), "{}", job.output());
            fs::metadata(self.home.join("started")).map(drop)
        });
    }

    /// Returns the directories of jobs, the lanes that their commands saw, and the job files.
    fn files(&self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        for dir in [
            self.home.path().to_owned(),
            self.home.join(".local/state/pegel/jobs"),
        ] {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let of_jobs = entries.map(|entry| entry.path()).filter(|path| {
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                name.starts_with("pegel-job-")
                    || path.parent().is_some_and(|dir| dir.ends_with("jobs"))
            });
            left.extend(of_jobs);
        }
        let lanes = fs::read_to_string(self.home.join("lanes-of-job")).unwrap_or_default();
        left.extend(
            lanes
                .lines()
                .map(PathBuf::from)
                .filter(|path| path.exists()),
        );
        left
    }

    /// Checks that no process, directory or lane of the job is left; agents end a moment after a
    /// killed head.
    #[track_caller]
    pub(crate) fn leaves_nothing(&self, mark: &str) {
        eventually("nothing is left", || {
            let (processes, files) = (processes_of(self.home.path(), mark), self.files());
            match processes.is_empty() && files.is_empty() {
                true => Ok(()),
                false => Err((processes, files)),
            }
        });
        let _ = fs::remove_file(self.home.join("started"));
        let _ = fs::remove_file(self.home.join("lanes-of-job"));
    }
}

/// The part of a command that tells the test where its lanes are and that it runs.
pub(crate) const BEGIN: &str = "echo $PEGEL_LANES >> lanes-of-job; : > started; ";

/// Returns the command lines of processes that have a file below `dir` open, or whose command line
/// contains `mark`.
pub(crate) fn processes_of(dir: &Path, mark: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("listed").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) || name == own {
            continue;
        }
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&words).replace('\0', " ");
        let files = fs::read_dir(entry.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let is_user = files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|path| is_of_job(&path, dir));
        let is_client = !mark.is_empty() && line.contains(mark) && line.contains("ssh");
        if is_user || is_client {
            found.push(format!("{name}: {line}"));
        }
    }
    found
}

/// Whether a path is in the directory of a job below `dir`.
fn is_of_job(path: &Path, dir: &Path) -> bool {
    let rest = path.strip_prefix(dir).ok();
    rest.is_some_and(|rest| rest.to_string_lossy().starts_with("pegel-job-"))
}
