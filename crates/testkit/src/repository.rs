//! Files of the repository.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns a fixture tree: a machine made of files.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(REPOSITORY).join("tests/fixtures").join(name)
}
