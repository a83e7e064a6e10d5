//! The release binary of the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the agent in release mode and returns its path. `$PEGEL_BENCH_BINARY` names an existing
/// binary to use instead.
pub fn release_binary() -> PathBuf {
    if let Some(binary) = std::env::var_os("PEGEL_BENCH_BINARY") {
        return PathBuf::from(binary);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--package", "pegel"])
        .current_dir(root)
        .status()
        .expect("cargo starts");
    assert!(built.success(), "building the agent failed");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    target.join("release/pegel")
}
