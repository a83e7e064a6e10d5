//! Writes the archives for systems without deb or rpm: one with the dynamic program, one with the
//! static one.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::{fs, path};

use anyhow::{Context, Result};

use super::binaries::Binaries;
use super::package_files::{PackageFile, PackageFiles, set_times};
use super::release::Release;
use super::tool;

/// Directories of a package and their paths in an archive. Units and their configuration have the
/// names that they have in the repository, because docs/operating.md installs them by hand.
const PLACES: [(&str, &str); 10] = [
    ("usr/bin/", "bin/"),
    ("usr/share/licenses/pegel/", ""),
    ("usr/share/doc/pegel/", ""),
    (
        "usr/lib/systemd/system/pegel.service",
        "packaging/systemd/pegel.service",
    ),
    ("usr/lib/systemd/user/", "packaging/systemd/user/"),
    (
        "usr/lib/sysusers.d/pegel.conf",
        "packaging/systemd/pegel.sysusers.conf",
    ),
    (
        "usr/lib/tmpfiles.d/pegel.conf",
        "packaging/systemd/pegel.tmpfiles.conf",
    ),
    ("etc/logrotate.d/pegel", "packaging/systemd/pegel.logrotate"),
    ("usr/share/pegel/drop-ins/", "packaging/systemd/drop-ins/"),
    ("etc/pegel/", "config/"),
];

pub(super) fn write(
    release: &Release,
    files: &PackageFiles,
    binaries: &Binaries,
    sbom: &Path,
) -> Result<()> {
    let all = [
        ("gnu", Some(&binaries.dynamic.path)),
        ("musl", binaries.static_.as_ref()),
    ];
    for (libc, binary) in all {
        if let Some(binary) = binary {
            write_one(release, files, libc, binary, sbom)?;
        }
    }
    Ok(())
}

fn write_one(
    release: &Release,
    files: &PackageFiles,
    libc: &str,
    binary: &Path,
    sbom: &Path,
) -> Result<()> {
    let name = format!("pegel-{}-{}-linux-{libc}", release.version, release.arch);
    let parent = release.work.join("archive").join(libc);
    let root = parent.join(&name);
    files.stage(&root, release, |file| Some(archive_path(file)))?;
    let program = root.join("bin/pegel");
    fs::copy(binary, &program).with_context(|| format!("cannot write {}", program.display()))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    tool::write(&root.join("pegel.cdx.json"), tool::read(sbom)?)?;
    set_times(&root, release)?;
    pack(
        release,
        &parent,
        &name,
        &release.out.join(format!("{name}.tar.xz")),
    )
}

fn archive_path(file: &PackageFile) -> String {
    for (from, to) in PLACES {
        if let Some(rest) = file.path.strip_prefix(from) {
            return format!("{to}{rest}");
        }
    }
    let path = file.path.strip_prefix("usr/").unwrap_or(&file.path);
    path.to_owned()
}

/// Packs `parent/name`: sorted, without owners, with the time of the release.
fn pack(release: &Release, parent: &Path, name: &str, to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--numeric-owner"])
        .args(["--owner=0", "--group=0"])
        .arg(format!("--mtime=@{}", release.epoch))
        .arg(format!(
            "--use-compress-program=xz -{} -T1",
            release.compression
        ))
        .arg("--file")
        .arg(path::absolute(to)?)
        .arg(name)
        .current_dir(parent);
    tool::output(&mut tar)?;
    Ok(())
}
