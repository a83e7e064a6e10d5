//! The Spack recipe.

use std::fs;
use std::process::Command;

use pegel_testkit::{TempDir, need};

use crate::built_packages::{packages, succeed};

/// Checks the recipe without Spack: its syntax, and that it uses only names of Spack's interface
/// for packages (version 2.0 of it, see "Package API" in Spack's manual).
const CHECK: &str = include_str!("check_recipe.py");

#[test]
fn the_spack_recipe_builds_from_the_source_archive() {
    let Some(packages) = packages() else { return };
    if need("python3").is_none() {
        return;
    }
    let recipe = packages
        .dir
        .join("spack/spack_repo/pegel/packages/pegel/package.py");
    succeed(Command::new("python3").args(["-c", CHECK]).arg(&recipe));
    let text = fs::read_to_string(&recipe).expect("a text");
    let version = env!("CARGO_PKG_VERSION");
    let sources = packages.find(&format!("/pegel-{version}.tar.xz"));
    let sum = succeed(Command::new("sha256sum").arg(&sources));
    let sum = sum.split(' ').next().expect("a checksum");
    let line = format!("version(\"{version}\", sha256=\"{sum}\")");
    assert!(text.contains(&line), "{line}\n{text}");
    assert!(text.contains("variant(\"prometheus\""), "{text}");
    // What the recipe builds is there.
    let home = TempDir::new();
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(&sources);
    succeed(unpack.current_dir(home.path()));
    let root = home.join(format!("pegel-{version}"));
    assert!(root.join("crates/cli/Cargo.toml").is_file());
    assert!(root.join("Cargo.lock").is_file());
}
