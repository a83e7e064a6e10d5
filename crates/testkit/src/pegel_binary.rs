//! Starts the built `pegel`, isolated from the machine and from other tests.

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::{AgentBuilder, TempDir, set_mode};

/// The built binary. Cargo tells its path only to the tests of its own package: each test binary
/// there defines `const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));`.
///
/// Deliberately not usable as the argument of `Command::new`: a test starts it with
/// [`PegelBinary::agent`] or [`PegelBinary::command`].
#[derive(Debug, Clone, Copy)]
pub struct PegelBinary {
    path: &'static str,
}

impl PegelBinary {
    pub const fn at(path: &'static str) -> PegelBinary {
        PegelBinary { path }
    }

    /// Returns the path, for scripts and for programs that start the binary.
    pub fn path(self) -> &'static str {
        self.path
    }

    pub fn agent(self) -> AgentBuilder {
        AgentBuilder::new(self.path)
    }

    /// Returns an agent that a shell starts after the commands `before`, such as `ulimit -n 64`.
    /// The script is in `dir`.
    pub fn agent_after(self, dir: &TempDir, before: &str) -> AgentBuilder {
        let script = dir.join("pegel");
        let text = format!("#!/bin/sh\n{before}\nexec {} \"$@\"\n", self.path);
        std::fs::write(&script, text).expect("the directory can be written");
        set_mode(&script, 0o700);
        AgentBuilder::new(&script)
    }

    /// Returns a command with its directories below `home`, see [`isolate`].
    pub fn command(self, home: &TempDir) -> Command {
        let mut command = Command::new(self.path);
        isolate(&mut command, home);
        command
    }

    /// Copies the binary to a path that another user can reach.
    pub fn copy_to(self, path: &Path) {
        copy_program(Path::new(self.path), path);
    }
}

impl fmt::Display for PegelBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}

/// Copies a program with `cp`, not in this process: executing a file that is open for writing fails
/// with ETXTBSY, and a child of a concurrent test could inherit the descriptor and hold it a moment
/// longer.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("cp starts").success(), "{}", to.display());
}

/// Gives a command a home, runtime and lane directory of its own, all below `home`, and nothing of
/// the caller's environment but `PATH`. Agents, lanes and installed libraries of the user who runs
/// the tests are out of its reach.
pub fn isolate(command: &mut Command, home: impl AsRef<Path>) {
    let home = home.as_ref();
    let lanes = home.join("lanes");
    // It exists already for a second command.
    let _ = std::fs::create_dir(&lanes);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("XDG_RUNTIME_DIR", home)
        .env("PEGEL_LANES", lanes)
        // Tests may run in a cloud: do not query its metadata service.
        .env("PEGEL_IMDS_URL", "none")
        .current_dir(home);
}
