//! Writes the Python wheel: the client that maturin builds, and the program as a script.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::binaries::ReleaseBinary;
use super::options::{DistOptions, DistProfile};
use super::package_files::entries;
use super::release::Release;
use super::{reproducible, tool};
use crate::{peers, step};

const ADD_PROGRAM: &str = include_str!("add_program.py");

pub(super) fn write(
    release: &Release,
    options: &DistOptions,
    binary: &ReleaseBinary,
    sbom: &Path,
) -> Result<()> {
    let client = match &options.client_wheel {
        Some(wheel) => wheel.clone(),
        None => build_client(release, options.profile)?,
    };
    let mut python = Command::new("python3");
    python
        .args(["-c", ADD_PROGRAM])
        .arg(client)
        .arg(&binary.path)
        .arg(sbom)
        .arg(&release.out)
        .arg(release.epoch.to_string())
        .arg(release.compression.max(1).to_string());
    let name = tool::output(&mut python)?;
    println!("dist: {}", name.trim());
    Ok(())
}

/// Builds the wheel of clients/python with the maturin that tests use, else with that of `$PATH`.
fn build_client(release: &Release, profile: DistProfile) -> Result<PathBuf> {
    peers::install_folder("python-client");
    let maturin = step::root().join("target/peers/python-client/bin/maturin");
    let maturin = if maturin.exists() {
        maturin
    } else {
        PathBuf::from("maturin")
    };
    let profile = match profile {
        DistProfile::Release => "release",
        DistProfile::Dev => "dev",
    };
    let wheels = release.work.join("wheels");
    let mut command = Command::new(maturin);
    command
        .args(["build", "--quiet", "--locked", "--profile", profile])
        .arg("--manifest-path")
        .arg(step::root().join("clients/python/Cargo.toml"))
        .arg("--target-dir")
        .arg(step::root().join("target/dist-build/python"))
        .arg("--out")
        .arg(&wheels)
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    reproducible::apply(&mut command, &[]);
    let status = command
        .status()
        .context("cannot start maturin; install it with pip")?;
    ensure!(status.success(), "maturin failed");
    let built = entries(&wheels)?;
    ensure!(
        built.len() == 1,
        "maturin wrote {built:?}, expected one wheel"
    );
    Ok(built[0].clone())
}
