//! Writes the Debian package with `dpkg-deb`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result};

use super::binaries::ReleaseBinary;
use super::package_files::{FileRole, PackageFile, PackageFiles, entries, file_name, set_times};
use super::release::{DESCRIPTION, LICENCE, Release, SUMMARY};
use super::tool;
use crate::step;

pub(super) fn write(release: &Release, files: &PackageFiles, binary: &ReleaseBinary) -> Result<()> {
    let arch = release.deb_arch()?;
    let root = release.work.join("deb");
    let place = |file: &PackageFile| Some(debian_path(file));
    files.stage(&root, release, place)?;
    let control = root.join("DEBIAN");
    tool::write(
        &control.join("control"),
        control_file(release, arch, binary, files),
    )?;
    tool::write(&control.join("conffiles"), conffiles(files))?;
    tool::write(&control.join("md5sums"), md5sums(files, &root)?)?;
    for script in entries(&step::root().join("packaging/deb"))? {
        let to = control.join(file_name(&script));
        tool::write(&to, tool::read(&script)?)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    }
    tool::write(
        &root.join("usr/share/doc/pegel/copyright"),
        copyright(files)?,
    )?;
    set_times(&root, release)?;
    restrict_configuration(&root)?;
    let package = release
        .out
        .join(format!("pegel_{}_{arch}.deb", release.version));
    let level = format!("-z{}", release.compression);
    let mut dpkg = Command::new("dpkg-deb");
    // With several threads, the bytes would depend on their number.
    dpkg.args([
        "--build",
        "--root-owner-group",
        "--threads-max=1",
        "-Zxz",
        &level,
    ])
    .arg(&root)
    .arg(&package)
    .env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    tool::output(&mut dpkg)?;
    Ok(())
}

/// Returns the path of a file in Debian, which has its own directory for completions of zsh.
fn debian_path(file: &PackageFile) -> String {
    file.path
        .replace("zsh/site-functions", "zsh/vendor-completions")
}

/// Restricts access to `/etc/pegel`, which may contain tokens and keys.
fn restrict_configuration(root: &std::path::Path) -> Result<()> {
    let dir = root.join("etc/pegel");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o750))
        .with_context(|| format!("cannot change the mode of {}", dir.display()))
}

fn control_file(
    release: &Release,
    arch: &str,
    binary: &ReleaseBinary,
    files: &PackageFiles,
) -> String {
    let bytes: usize = files.files.iter().map(|file| file.contents.len()).sum();
    format!(
        "Package: pegel\n\
         Version: {}\n\
         Architecture: {arch}\n\
         Maintainer: Pegel developers <pegel@localhost>\n\
         Installed-Size: {}\n\
         Depends: libc6 (>= 2.{}), libgcc-s1\n\
         Suggests: grafana, prometheus\n\
         Section: admin\n\
         Priority: optional\n\
         Description: {SUMMARY}\n {}\n",
        release.version,
        bytes.div_ceil(1024),
        binary.glibc_minor,
        DESCRIPTION.join("\n ")
    )
}

fn conffiles(files: &PackageFiles) -> String {
    let configuration = files
        .files
        .iter()
        .filter(|file| file.role == FileRole::Configuration);
    configuration
        .map(|file| format!("/{}\n", file.path))
        .collect()
}

/// Lists the checksums by which `dpkg --verify` finds changed files.
fn md5sums(files: &PackageFiles, root: &std::path::Path) -> Result<String> {
    let mut command = Command::new("md5sum");
    let plain = files
        .files
        .iter()
        .filter(|file| file.role != FileRole::Configuration);
    command.args(plain.map(debian_path)).current_dir(root);
    tool::output(&mut command)
}

fn copyright(files: &PackageFiles) -> Result<String> {
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: pegel\n\n\
         Files: *\n\
         Copyright: the Pegel developers\n\
         License: {}\n\
         Comment:\n The program contains the libraries that\n \
         /usr/share/licenses/pegel/THIRD-PARTY-LICENSES.txt lists, under their own licences.\n\n",
        LICENCE.replace("OR", "or")
    );
    text.push_str(
        "License: Apache-2.0\n On Debian systems, the licence is in /usr/share/common-licenses/Apache-2.0.\n\n",
    );
    let mit = files
        .files
        .iter()
        .find(|file| file.path.ends_with("LICENSE-MIT"));
    let mit = mit.context("LICENSE-MIT is not among the files")?;
    let mit = String::from_utf8_lossy(&mit.contents);
    text.push_str("License: MIT\n");
    for line in mit.lines() {
        let line = if line.trim().is_empty() { "." } else { line };
        text.push_str(&format!(" {line}\n"));
    }
    Ok(text)
}
