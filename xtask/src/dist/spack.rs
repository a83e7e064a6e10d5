//! Writes the source archive, and a Spack repository whose recipe builds from it.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::checksums::sha256;
use super::release::Release;
use super::tool;
use crate::step;

/// The line of packaging/spack/package.py that is replaced by the version of the archive.
const VERSION_LINE: &str = "    # cargo xtask dist: the version and its checksum\n";

pub(super) fn write(release: &Release) -> Result<()> {
    let archive = write_sources(release)?;
    let recipe = tool::read(&step::root().join("packaging/spack/package.py"))?;
    let recipe = String::from_utf8(recipe).context("the recipe is not UTF-8")?;
    ensure!(
        recipe.contains(VERSION_LINE),
        "packaging/spack/package.py lacks the line {VERSION_LINE:?}"
    );
    let version = format!(
        "    version(\"{}\", sha256=\"{}\")\n",
        release.version,
        sha256(&archive)?
    );
    let recipe = recipe.replace(VERSION_LINE, &version);
    let repository = release.out.join("spack/spack_repo/pegel");
    tool::write(
        &repository.join("repo.yaml"),
        "repo:\n  namespace: pegel\n  api: v2.0\n",
    )?;
    tool::write(&repository.join("packages/pegel/package.py"), recipe)
}

/// Packs the files of the commit.
fn write_sources(release: &Release) -> Result<std::path::PathBuf> {
    let tar = release.work.join("sources.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar"])
        .arg(format!("--prefix=pegel-{}/", release.version))
        .arg("--output")
        .arg(&tar)
        .arg("HEAD");
    tool::output(git.current_dir(step::root()))?;
    let archive = release
        .out
        .join(format!("pegel-{}.tar.xz", release.version));
    let level = format!("-{}", release.compression);
    let packed = tool::bytes(Command::new("xz").args(["-T1", "-c", &level]).arg(&tar))?;
    tool::write(&archive, packed)?;
    Ok(archive)
}
