//! Builds the packages of a release in `target/dist`: deb, rpm, wheel, archives, Spack recipe, SBOM
//! and checksums. docs/packages.md describes them, docs/decisions/0080-packages.md the choices.
//!
//! Packages are reproducible: paths of this machine are not compiled in, and every time is that of
//! the commit. The same binary always gives the same bytes.

mod archive;
mod binaries;
mod checksums;
mod deb;
mod dependencies;
mod licences;
mod options;
mod package_files;
mod release;
pub(crate) mod reproducible;
mod rpm;
mod sbom;
mod spack;
mod tool;
mod wheel;

use std::fs;

use anyhow::{Context, Result};

use binaries::Binaries;
use dependencies::DependencyGraph;
use options::{DistOptions, PackageKind};
use package_files::PackageFiles;
use release::Release;

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = DistOptions::parse(args)?;
    let release = Release::new(&options)?;
    release.remove_earlier_packages()?;
    fs::create_dir_all(&release.work)
        .with_context(|| format!("cannot create {}", release.work.display()))?;
    let graph = DependencyGraph::read(&release)?;
    let sbom = sbom::write(&release, &graph)?;
    let binaries = Binaries::build(&release, &options)?;
    let files = PackageFiles::generate(&release, &graph, &binaries.dynamic)?;
    for kind in PackageKind::ALL {
        if options.is_wanted(kind) {
            match kind {
                PackageKind::Deb => deb::write(&release, &files, &binaries.dynamic)?,
                PackageKind::Rpm => rpm::write(&release, &files)?,
                PackageKind::Wheel => wheel::write(&release, &options, &binaries.dynamic, &sbom)?,
                PackageKind::Archive => archive::write(&release, &files, &binaries, &sbom)?,
                PackageKind::Spack => spack::write(&release)?,
            }
        }
    }
    fs::remove_dir_all(&release.work).context("cannot remove the staging directory")?;
    checksums::write(&release)?;
    checksums::print(&release)
}
