//! Builds the packages once for all tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use pegel_testkit::{AgentBuilder, ChildProcess, PythonPackage, REPOSITORY, need, need_peer};

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(900);

/// A directory with the output of `cargo xtask dist`.
#[derive(Debug)]
pub(crate) struct BuiltPackages {
    pub dir: PathBuf,
}

/// Returns the packages that all tests share; `None`, with the skip recorded, where a program that
/// writes them is missing.
#[track_caller]
pub(crate) fn packages() -> Option<&'static BuiltPackages> {
    static PACKAGES: OnceLock<BuiltPackages> = OnceLock::new();
    for program in ["dpkg-deb", "git", "python3", "readelf", "rpmbuild", "xz"] {
        need(program)?;
    }
    let marker = need_peer("python-client/bin/pegel-tests")?;
    Some(PACKAGES.get_or_init(|| {
        let tools = marker.ancestors().nth(2).expect("a virtual environment");
        let client = PythonPackage::build(tools, "dev");
        // A static value is never dropped, so the directory is one that the next run reuses.
        let own = std::env::current_exe().expect("a test has a file");
        let profile = own.ancestors().nth(2).expect("target/PROFILE");
        let dir = profile.join("packages");
        let mut command = dist(&dir, "deb,rpm,wheel,archive,spack");
        command.arg("--client-wheel").arg(&client.wheel);
        succeed(&mut command);
        BuiltPackages { dir }
    }))
}

/// Returns the command that packages the tested binary.
pub(crate) fn dist(out: &Path, only: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command
        .args(["run", "--quiet", "--locked", "--package", "xtask", "--"])
        .args(["dist", "--profile", "dev", "--only", only, "--binary"])
        .arg(PEGEL.path())
        .arg("--out")
        .arg(out)
        .current_dir(REPOSITORY);
    command
}

/// Runs a command, which must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let finished = ChildProcess::start(command).wait(BOUND);
    assert!(finished.status.success(), "{command:?}: {finished}");
    finished.stdout
}

impl BuiltPackages {
    /// Returns the only package whose name ends so.
    #[track_caller]
    pub(crate) fn find(&self, suffix: &str) -> PathBuf {
        let mut found: Vec<PathBuf> = fs::read_dir(&self.dir)
            .expect("the packages")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.to_string_lossy().ends_with(suffix))
            .collect();
        assert_eq!(found.len(), 1, "{suffix}: {found:?}");
        found.remove(0)
    }
}

/// Starts an agent from an unpacked program, and stops it after it stored a sample.
#[track_caller]
pub(crate) fn check_program(program: &Path) {
    let version = succeed(Command::new(program).arg("--version").env_clear());
    assert_eq!(version.trim(), concat!("pegel ", env!("CARGO_PKG_VERSION")));
    let agent = AgentBuilder::new(program).start();
    let value = agent.client(&["get", "node_load1"]);
    assert!(value.stdout.contains("node_load1"), "{value}");
    let stopped = agent.stop();
    assert!(stopped.status.success(), "{stopped}");
}
