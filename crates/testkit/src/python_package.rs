//! Builds the Python package as its users do: a wheel by maturin, installed by pip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{ChildProcess, REPOSITORY};

/// Building compiles the native module and its dependencies the first time.
const BUILD_BOUND: Duration = Duration::from_secs(1800);

/// A built wheel, and a directory for `PYTHONPATH` in which it is installed.
#[derive(Debug)]
pub struct PythonPackage {
    /// An interpreter with the packages that the tests require.
    pub python: PathBuf,
    pub wheel: PathBuf,
    pub site: PathBuf,
}

impl PythonPackage {
    /// Builds the package with a profile of cargo. `tools` is a virtual environment with maturin.
    ///
    /// It has its own target directory: maturin sets variables that would cause a rebuild of the
    /// same crates by the next `cargo build`.
    pub fn build(tools: &Path, profile: &str) -> PythonPackage {
        let root = Path::new(REPOSITORY);
        let built = root.join("target/python").join(profile);
        let wheels = built.join("wheels");
        // Neither exists the first time; an old wheel would be installed as well.
        let _ = fs::remove_dir_all(&wheels);
        let site = built.join("site");
        let _ = fs::remove_dir_all(&site);
        let mut maturin = Command::new(tools.join("bin/maturin"));
        maturin
            .args(["build", "--quiet", "--locked", "--profile", profile])
            .arg("--manifest-path")
            .arg(root.join("clients/python/Cargo.toml"))
            .arg("--interpreter")
            .arg(tools.join("bin/python"))
            .arg("--target-dir")
            .arg(root.join("target/python/target"))
            .arg("--out")
            .arg(&wheels);
        succeed(&mut maturin);
        let wheel = only_entry(&wheels);
        let mut pip = Command::new(tools.join("bin/pip"));
        pip.args(["install", "--quiet", "--no-index", "--no-deps", "--target"])
            .arg(&site)
            .arg(&wheel);
        succeed(&mut pip);
        PythonPackage {
            python: tools.join("bin/python"),
            wheel,
            site,
        }
    }
}

fn succeed(command: &mut Command) {
    let finished = ChildProcess::start(command).wait(BUILD_BOUND);
    assert!(finished.status.success(), "{command:?}: {finished}");
}

fn only_entry(dir: &Path) -> PathBuf {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths.remove(0)
}
