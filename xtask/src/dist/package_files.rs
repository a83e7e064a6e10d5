//! The files that deb, rpm and archives install, generated from the binary and the repository.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::binaries::ReleaseBinary;
use super::dependencies::DependencyGraph;
use super::release::Release;
use super::{licences, tool};
use crate::step;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRole {
    Plain,
    /// Kept at an upgrade if the administrator changed it. The service's group may read it.
    Configuration,
    Documentation,
    Licence,
}

#[derive(Debug)]
pub(super) struct PackageFile {
    /// Below the root of the system, without a leading slash.
    pub path: String,
    pub role: FileRole,
    pub mode: u32,
    pub contents: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct PackageFiles {
    pub files: Vec<PackageFile>,
}

/// Files of the repository, their paths in a package, and their roles.
const REPOSITORY_FILES: [(&str, &str, FileRole); 11] = [
    (
        "packaging/systemd/pegel.service",
        "usr/lib/systemd/system/pegel.service",
        FileRole::Plain,
    ),
    (
        "packaging/systemd/user/pegel.service",
        "usr/lib/systemd/user/pegel.service",
        FileRole::Plain,
    ),
    (
        "packaging/systemd/pegel.sysusers.conf",
        "usr/lib/sysusers.d/pegel.conf",
        FileRole::Plain,
    ),
    (
        "packaging/systemd/pegel.tmpfiles.conf",
        "usr/lib/tmpfiles.d/pegel.conf",
        FileRole::Plain,
    ),
    (
        "packaging/systemd/pegel.logrotate",
        "etc/logrotate.d/pegel",
        FileRole::Configuration,
    ),
    (
        "config/pegel.yaml",
        "etc/pegel/pegel.yaml",
        FileRole::Configuration,
    ),
    (
        "README.md",
        "usr/share/doc/pegel/README.md",
        FileRole::Documentation,
    ),
    (
        "CHANGELOG.md",
        "usr/share/doc/pegel/CHANGELOG.md",
        FileRole::Documentation,
    ),
    (
        "SECURITY.md",
        "usr/share/doc/pegel/SECURITY.md",
        FileRole::Documentation,
    ),
    (
        "LICENSE-APACHE",
        "usr/share/licenses/pegel/LICENSE-APACHE",
        FileRole::Licence,
    ),
    (
        "LICENSE-MIT",
        "usr/share/licenses/pegel/LICENSE-MIT",
        FileRole::Licence,
    ),
];

/// Shells, and where they search for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/pegel"),
    ("fish", "usr/share/fish/vendor_completions.d/pegel.fish"),
    ("zsh", "usr/share/zsh/site-functions/_pegel"),
];

impl PackageFiles {
    pub(super) fn generate(
        release: &Release,
        graph: &DependencyGraph,
        binary: &ReleaseBinary,
    ) -> Result<PackageFiles> {
        let mut files = PackageFiles { files: Vec::new() };
        files.add(
            "usr/bin/pegel",
            FileRole::Plain,
            0o755,
            tool::read(&binary.path)?,
        );
        for (from, to, role) in REPOSITORY_FILES {
            let contents = tool::read(&step::root().join(from))?;
            // The configuration may name files with secrets.
            let mode = if to == "etc/pegel/pegel.yaml" {
                0o640
            } else {
                0o644
            };
            files.add(to, role, mode, contents);
        }
        for path in entries(&step::root().join("packaging/systemd/drop-ins"))? {
            let to = format!("usr/share/pegel/drop-ins/{}", file_name(&path));
            files.add(&to, FileRole::Plain, 0o644, tool::read(&path)?);
        }
        // Below `docs`, so that the links of README.md lead to them.
        for dir in ["docs", "docs/start"] {
            for path in entries(&step::root().join(dir))? {
                if path.extension().is_some_and(|extension| extension == "md") {
                    let to = format!("usr/share/doc/pegel/{dir}/{}", file_name(&path));
                    files.add(&to, FileRole::Documentation, 0o644, tool::read(&path)?);
                }
            }
        }
        let notices = licences::third_party_notices(graph)?;
        let to = "usr/share/licenses/pegel/THIRD-PARTY-LICENSES.txt";
        files.add(to, FileRole::Licence, 0o644, notices.into_bytes());
        for (shell, to) in COMPLETIONS {
            let mut command = Command::new(&binary.path);
            let script = tool::bytes(command.args(["completions", shell]).env_clear())?;
            files.add(to, FileRole::Plain, 0o644, script);
        }
        files.add_manual_pages(&binary.path, &release.work.join("man"))?;
        files.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    fn add(&mut self, path: &str, role: FileRole, mode: u32, contents: Vec<u8>) {
        self.files.push(PackageFile {
            path: path.to_owned(),
            role,
            mode,
            contents,
        });
    }

    fn add_manual_pages(&mut self, binary: &Path, dir: &Path) -> Result<()> {
        tool::output(
            Command::new(binary)
                .args(["man", "--dir"])
                .arg(dir)
                .env_clear(),
        )?;
        // -n: without name and time.
        tool::output(Command::new("gzip").args(["-9", "-n", "-r"]).arg(dir))?;
        for section in entries(dir)? {
            for page in entries(&section)? {
                let to = format!("usr/share/man/{}/{}", file_name(&section), file_name(&page));
                self.add(&to, FileRole::Documentation, 0o644, tool::read(&page)?);
            }
        }
        Ok(())
    }

    /// Writes all files below `root`, at the paths that `place` returns; those without one are left
    /// out.
    pub(super) fn stage(
        &self,
        root: &Path,
        release: &Release,
        place: impl Fn(&PackageFile) -> Option<String>,
    ) -> Result<()> {
        for file in &self.files {
            if let Some(path) = place(file) {
                let path = root.join(path);
                tool::write(&path, &file.contents)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
            }
        }
        set_times(root, release)
    }
}

/// Gives every directory below `root` its mode, and everything the time of the release.
pub(super) fn set_times(root: &Path, release: &Release) -> Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(release.epoch);
    for path in entries(root)? {
        if path.is_dir() {
            set_times(&path, release)?;
        } else {
            set_time(&path, time)?;
        }
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change the mode of {}", root.display()))?;
    set_time(root, time)
}

fn set_time(path: &Path, time: SystemTime) -> Result<()> {
    File::open(path)
        .and_then(|file| file.set_modified(time))
        .with_context(|| format!("cannot change the time of {}", path.display()))
}

/// Returns the sorted entries of a directory.
pub(super) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot list {}", dir.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).with_context(cannot)? {
        paths.push(entry.with_context(cannot)?.path());
    }
    paths.sort();
    Ok(paths)
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
