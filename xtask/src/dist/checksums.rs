//! Writes `SHA256SUMS` and prints the files that were built.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::package_files::{entries, file_name};
use super::release::Release;
use super::tool;

pub(super) const NAME: &str = "SHA256SUMS";

pub(super) fn write(release: &Release) -> Result<()> {
    let mut command = Command::new("sha256sum");
    command
        .arg("--")
        .args(packages(release)?.iter().map(|path| file_name(path)));
    let sums = tool::output(command.current_dir(&release.out))?;
    tool::write(&release.out.join(NAME), sums)
}

/// Returns the checksum of one file.
pub(super) fn sha256(path: &std::path::Path) -> Result<String> {
    let text = tool::output(Command::new("sha256sum").arg(path))?;
    let sum = text.split(' ').next();
    sum.map(str::to_owned).context("sha256sum printed nothing")
}

pub(super) fn print(release: &Release) -> Result<()> {
    for path in packages(release)? {
        let bytes = path.metadata()?.len();
        println!("{bytes:>12}  {}", path.display());
    }
    Ok(())
}

fn packages(release: &Release) -> Result<Vec<PathBuf>> {
    let all = entries(&release.out)?;
    Ok(all
        .into_iter()
        .filter(|path| path.is_file() && file_name(path) != NAME)
        .collect())
}
