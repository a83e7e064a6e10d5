//! The two binaries of a release: one with the system's C library, and a static one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::options::{DistOptions, DistProfile};
use super::release::Release;
use super::{reproducible, tool};
use crate::{static_binary, step};

#[derive(Debug)]
pub(super) struct Binaries {
    /// For packages of this distribution and for NVIDIA GPUs.
    pub dynamic: ReleaseBinary,
    /// For any node image; `None` if it was not requested.
    pub static_: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct ReleaseBinary {
    pub path: PathBuf,
    /// The minor version of glibc that it requires: 34 for 2.34.
    pub glibc_minor: u32,
}

impl Binaries {
    pub(super) fn build(release: &Release, options: &DistOptions) -> Result<Binaries> {
        let built = match &options.binary {
            Some(binary) => binary.clone(),
            None => build_dynamic(options.profile)?,
        };
        let path = strip(&built, &release.work.join("dynamic/pegel"))?;
        check(&path, release)?;
        let glibc_minor = glibc_minor(&path)?;
        println!("dist: {} requires glibc 2.{glibc_minor}", built.display());
        let built = match &options.static_binary {
            _ if !options.has_static => None,
            Some(binary) => Some(binary.clone()),
            None if options.profile == DistProfile::Dev => None,
            None => Some(static_binary::build()?),
        };
        let static_ = built
            .map(|built| strip(&built, &release.work.join("static/pegel")))
            .transpose()?;
        if let Some(path) = &static_ {
            static_binary::verify(path)?;
        }
        Ok(Binaries {
            dynamic: ReleaseBinary { path, glibc_minor },
            static_,
        })
    }
}

/// Builds in a separate target directory: the flags would otherwise rebuild the default one.
fn build_dynamic(profile: DistProfile) -> Result<PathBuf> {
    let (profile, folder) = match profile {
        DistProfile::Release => ("release", "release"),
        DistProfile::Dev => ("dev", "debug"),
    };
    let target = step::root().join("target/dist-build");
    let mut cargo = step::cargo_command();
    cargo
        .args([
            "build",
            "--locked",
            "--package",
            "pegel",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(&target);
    reproducible::apply(&mut cargo, &[]);
    let status = cargo.status().context("cannot start cargo")?;
    ensure!(status.success(), "the build failed");
    Ok(target.join(folder).join("pegel"))
}

/// Copies a binary without symbols. The same binary always gives the same result.
fn strip(from: &Path, to: &Path) -> Result<PathBuf> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let mut strip = Command::new("strip");
    strip.args(["--strip-all", "--enable-deterministic-archives"]);
    tool::output(strip.arg("-o").arg(to).arg(from))?;
    Ok(to.to_owned())
}

fn check(binary: &Path, release: &Release) -> Result<()> {
    let version = tool::output(Command::new(binary).arg("--version").env_clear())?;
    let expected = format!("pegel {}", release.version);
    ensure!(
        version.starts_with(&expected),
        "{} prints {version:?}, expected {expected:?}",
        binary.display()
    );
    Ok(())
}

fn glibc_minor(binary: &Path) -> Result<u32> {
    let versions = tool::output(Command::new("readelf").args(["-VW"]).arg(binary))?;
    newest_glibc(&versions)
        .with_context(|| format!("{} requires no version of glibc", binary.display()))
}

/// Finds the newest `GLIBC_2.N` in the output of readelf.
pub(super) fn newest_glibc(versions: &str) -> Option<u32> {
    let minor = |rest: &str| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok())
    };
    versions.split("GLIBC_2.").skip(1).filter_map(minor).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_glibc_counts() {
        let text = "Name: GLIBC_2.9  Flags: none\nName: GLIBC_2.34  Flags\nName: GLIBC_2.2.5 F\n";
        assert_eq!(newest_glibc(text), Some(34));
        assert_eq!(newest_glibc("Name: GCC_3.0"), None);
    }
}
