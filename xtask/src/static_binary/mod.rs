//! Builds `pegel` as a static binary, which runs on any node image: with musl, or with glibc where
//! musl is not available. docs/decisions/0055-static-binary.md explains the choice.

mod musl_toolchain;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::dist::reproducible;
use crate::step;
use musl_toolchain::MuslToolchain;

pub(crate) fn run() -> Result<()> {
    let binary = build()?;
    verify(&binary)?;
    report(&binary)
}

/// Builds the binary and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let arch = std::env::consts::ARCH;
    match MuslToolchain::find(&format!("{arch}-unknown-linux-musl"))? {
        Some(toolchain) => {
            println!("static-binary: {}", toolchain.description());
            toolchain.build()
        }
        None => {
            println!(
                "static-binary: no standard library for musl; linking glibc statically. Names of \
                 users come from /etc/passwd only"
            );
            build_with_glibc(&format!("{arch}-unknown-linux-gnu"))
        }
    }
}

fn build_with_glibc(target: &str) -> Result<PathBuf> {
    let mut cargo = step::cargo_command();
    cargo
        .args(["build", "--locked", "--release", "--package", "pegel"])
        .args(["--target", target]);
    reproducible::apply(&mut cargo, &["-Ctarget-feature=+crt-static"]);
    let status = cargo.status().context("cannot start cargo")?;
    ensure!(status.success(), "the build failed");
    Ok(built(target))
}

/// Returns the path of the built program.
fn built(target: &str) -> PathBuf {
    step::root()
        .join("target")
        .join(target)
        .join("release/pegel")
}

/// Checks that the program requires no dynamic linker and no library, and that it starts.
pub(crate) fn verify(binary: &Path) -> Result<()> {
    let headers = output(Command::new("readelf").arg("-ldW").arg(binary))?;
    for word in ["INTERP", "(NEEDED)"] {
        ensure!(!headers.contains(word), "not static: readelf shows {word}");
    }
    // Without any file of this machine: neither libraries nor a configuration.
    let version = output(Command::new(binary).arg("--version").env_clear())?;
    ensure!(
        version.starts_with("pegel "),
        "unexpected version: {version}"
    );
    print!("static-binary: {version}");
    Ok(())
}

/// Prints the sizes of the program and of its optional parts. No cargo feature leaves one out.
fn report(binary: &Path) -> Result<()> {
    let dynamic = step::root().join("target/release/pegel");
    let library = step::root().join("target/mpi-shim/release/libpegel_mpi.so");
    println!("{:>12}  {}", size(binary)?, binary.display());
    for (path, text) in [
        (&dynamic, "the same with the system's C library"),
        (&library, "of which the library that counts MPI calls"),
    ] {
        if let Ok(bytes) = size(path) {
            println!("{bytes:>12}  {text}");
        }
    }
    Ok(())
}

fn size(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(found.len())
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
