//! Builds the library that this crate embeds. Cargo has no stable artifact dependencies, so that a
//! second cargo process builds it, in a target directory shared by all profiles.
#![allow(clippy::print_stdout)] // Build scripts send instructions to cargo on stdout.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const LIBRARY: &str = "libpegel_mpi.so";

fn main() {
    for path in [
        "build.rs",
        "../mpi-shim",
        "../lane/src",
        "../lane/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    // OUT_DIR is PROFILE/build/PACKAGE/out.
    let target_dir = out.ancestors().nth(4).unwrap_or(&out).join("mpi-shim");
    build(&target_dir);
    let built = built_in(&target_dir);
    let library = fs::read(&built).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
    fs::write(out.join(LIBRARY), &library).expect("OUT_DIR can be written");
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    println!(
        "cargo::rustc-env=PEGEL_MPI_LIBRARY_HASH={:016x}",
        hasher.finish()
    );
}

fn build(target_dir: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--quiet", "--release", "--lib"])
        .args(["--manifest-path", "../mpi-shim/Cargo.toml"])
        .arg("--target-dir")
        .arg(target_dir);
    if is_cross() {
        cargo.arg("--target").arg(target());
    }
    // Settings of the outer build: sanitizers, coverage, clippy as the compiler.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_MAKEFLAGS",
        // A static build compiles the standard library for its own target.
        "RUSTC",
        "MAKEFLAGS",
    ] {
        cargo.env_remove(name);
    }
    // Flags for this build only: `cargo xtask dist` removes paths of the machine from the library.
    println!("cargo::rerun-if-env-changed=PEGEL_MPI_RUSTFLAGS");
    if let Some(flags) = env::var_os("PEGEL_MPI_RUSTFLAGS") {
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags);
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "{cargo:?}: {status}");
}

fn built_in(target_dir: &Path) -> PathBuf {
    let mut dir = target_dir.to_owned();
    if is_cross() {
        dir.push(target());
    }
    dir.join("release").join(LIBRARY)
}

fn is_cross() -> bool {
    variable("HOST") != target()
}

/// Returns the target of the library. It is loaded into programs of the node, which have glibc also
/// where this program is static.
fn target() -> String {
    variable("TARGET").replace("-musl", "-gnu")
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
