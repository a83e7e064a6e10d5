//! Paths and options shared by the tests.

use std::path::{Path, PathBuf};

use pegel_snapshot::{OnceInputs, ProcessEnvironment, SnapshotOptions, SnapshotSettings};

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    repository().join("tests/fixtures").join(name)
}

/// Options for a fixture tree with this environment.
pub(crate) fn options(root: &Path, environment: &[(&str, &str)]) -> SnapshotOptions {
    SnapshotOptions {
        root: root.to_owned(),
        node: "nid0001".to_owned(),
        version: "0.0.0".to_owned(),
        environment: ProcessEnvironment::from_pairs(environment),
        configuration: None,
        settings: SnapshotSettings::default(),
        once_inputs: OnceInputs::default(),
    }
}
