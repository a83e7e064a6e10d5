//! A program in the place of `pegel` that records its arguments, for scripts that call it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, isolate, set_mode};

const BOUND: Duration = Duration::from_secs(60);

/// One line per call: the arguments in brackets, then the working directory.
const SCRIPT: &str = r#"#!/bin/sh
line=$(for word in "$@"; do printf '[%s]' "$word"; done)
printf '%s in %s\n' "$line" "$PWD" >>"$FAKE_PEGEL_LOG"
exit "${FAKE_PEGEL_STATUS:-0}"
"#;

/// The program and a home for the scripts that call it.
#[derive(Debug)]
pub(crate) struct FakePegel {
    pub(crate) home: TempDir,
}

impl FakePegel {
    pub(crate) fn new() -> FakePegel {
        let home = TempDir::new();
        fs::create_dir(home.join("bin")).expect("created");
        let fake = FakePegel { home };
        fs::write(fake.path(), SCRIPT).expect("written");
        set_mode(fake.path(), 0o755);
        fake
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.join("bin/pegel")
    }

    /// Returns a command with the program first in its PATH.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        isolate(&mut command, &self.home);
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.home.join("bin");
        command
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("FAKE_PEGEL_LOG", self.home.join("calls"));
        command
    }

    /// Returns the calls so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.home.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

pub(crate) fn finish(command: &mut Command) -> FinishedProcess {
    ChildProcess::start(command).wait(BOUND)
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> FinishedProcess {
    let finished = finish(command);
    assert_eq!(finished.code(), Some(0), "{finished}");
    finished
}
