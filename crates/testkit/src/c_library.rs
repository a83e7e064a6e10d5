//! The C library, installed as its users install it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::ChildProcess;

/// Returns the prefix of an installation that all tests share, built with this profile. A static
/// value is never dropped, so the directory is one that the next run reuses.
pub fn c_library() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let own = std::env::current_exe().expect("a test has a file");
        let profile = own.ancestors().nth(2).expect("target/PROFILE");
        let prefix = profile.join("c-prefix");
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        command
            .args([
                "run",
                "--quiet",
                "--locked",
                "--package",
                "xtask",
                "--",
                "install",
            ])
            .arg("--prefix")
            .arg(&prefix)
            .arg("--debug");
        let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(600));
        assert!(finished.status.success(), "{command:?}: {finished}");
        prefix
    })
}
