//! Writes files into a directory shared with others. A manifest records the files written and their
//! checksums, so that neither foreign files nor modified ones are overwritten.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The extension keeps Grafana, which reads YAML and JSON files, from reading it.
const MANIFEST_FILE: &str = "pegel-provisioned.txt";

/// A file to write: its path below the directory, and its contents.
#[derive(Debug)]
pub(super) struct ProvisionedFile {
    pub path: String,
    pub text: String,
    /// Contains the token; readable only by owner and reader group.
    pub is_secret: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProvisionedState {
    New,
    /// Has the wanted contents.
    UpToDate,
    /// Written by an earlier run and not modified since.
    Outdated,
    /// Written by an earlier run and modified since.
    Modified,
    /// Not written by pegel.
    Foreign,
}

#[derive(Debug)]
pub(super) struct ProvisioningDir {
    dir: PathBuf,
    /// The manifest: checksums by path.
    checksums: BTreeMap<String, String>,
}

impl ProvisioningDir {
    /// Opens the directory, and creates it if it is missing.
    pub(super) fn open(dir: &Path) -> anyhow::Result<ProvisioningDir> {
        let shown = dir.display();
        match fs::metadata(dir) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => bail!("{shown} is not a directory"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(dir).with_context(|| cannot_write(dir))?;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot use {shown}")),
        }
        // Grafana requires an absolute path, and a later run may have another working directory.
        let dir = fs::canonicalize(dir).with_context(|| format!("cannot use {shown}"))?;
        let manifest = dir.join(MANIFEST_FILE);
        let text = match fs::read_to_string(&manifest) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", manifest.display()));
            }
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let written = lines.filter_map(|line| {
            let (sum, path) = line.split_once(' ')?;
            Some((path.to_owned(), sum.to_owned()))
        });
        Ok(ProvisioningDir {
            checksums: written.collect(),
            dir,
        })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, wanted: &ProvisionedFile) -> PathBuf {
        self.dir.join(&wanted.path)
    }

    pub(super) fn file_state(&self, wanted: &ProvisionedFile) -> anyhow::Result<ProvisionedState> {
        let path = self.path(wanted);
        let cannot = || format!("cannot read {}", path.display());
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ProvisionedState::New);
            }
            Err(error) => return Err(error).with_context(cannot),
        };
        if !found.is_file() {
            return Ok(ProvisionedState::Foreign);
        }
        let text = fs::read(&path).with_context(cannot)?;
        let is_exposed = wanted.is_secret && found.mode() & 0o007 != 0;
        let ours = self.checksums.get(&wanted.path);
        Ok(match ours {
            _ if text == wanted.text.as_bytes() && !is_exposed => ProvisionedState::UpToDate,
            Some(sum) if *sum == checksum(&text) => ProvisionedState::Outdated,
            Some(_) => ProvisionedState::Modified,
            None => ProvisionedState::Foreign,
        })
    }

    /// Replaces the file atomically: a reader finds the old or the new one.
    pub(super) fn write(&mut self, wanted: &ProvisionedFile) -> anyhow::Result<()> {
        let path = self.path(wanted);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| cannot_write(parent))?;
        }
        self.replace(&path, &wanted.text, wanted.is_secret)?;
        self.record(wanted);
        Ok(())
    }

    /// Adds a file to the manifest. An up-to-date file counts as written by pegel, whatever its
    /// origin.
    pub(super) fn record(&mut self, wanted: &ProvisionedFile) {
        let sum = checksum(wanted.text.as_bytes());
        self.checksums.insert(wanted.path.clone(), sum);
    }

    /// Writes the manifest if it changed.
    pub(super) fn write_manifest(&self) -> anyhow::Result<()> {
        let mut text = "# Files written by `pegel grafana provision`, with checksums. It overwrites only these.\n".to_owned();
        for (path, sum) in &self.checksums {
            text.push_str(&format!("{sum} {path}\n"));
        }
        let path = self.dir.join(MANIFEST_FILE);
        if fs::read_to_string(&path).is_ok_and(|current| current == text) {
            return Ok(());
        }
        // Secret as well: a checksum reveals information about the token.
        self.replace(&path, &text, true)
    }

    fn replace(&self, path: &Path, text: &str, is_secret: bool) -> anyhow::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // An extension that Grafana does not read.
        let temporary = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
        let written = self
            .write_new(&temporary, text, is_secret)
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // Errors are ignored: the file may not have been created.
            let _ = fs::remove_file(&temporary);
        }
        written.with_context(|| cannot_write(path))
    }

    fn write_new(&self, path: &Path, text: &str, is_secret: bool) -> io::Result<()> {
        // Stale file of a killed run with the same process ID.
        let _ = fs::remove_file(path);
        let mut file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(if is_secret { 0o600 } else { 0o644 })
            .open(path)?;
        if let Some(group) = self.reader_group().filter(|_| is_secret) {
            fchown(&file, None, Some(group))?;
            file.set_permissions(Permissions::from_mode(0o640))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Returns the group that must read secrets besides root: the directory's group if root runs
    /// this, as set by Grafana's packages. Other users provision a Grafana of their own.
    pub(super) fn reader_group(&self) -> Option<u32> {
        let is_root = rustix::process::geteuid().is_root();
        let group = fs::metadata(&self.dir).ok()?.gid();
        (is_root && group != 0).then_some(group)
    }
}

fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write {}; run as a user with write access, such as root",
        path.display()
    )
}

/// Detects changes, without protection against forgery: FNV-1a and the length.
fn checksum(text: &[u8]) -> String {
    let sum = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{sum:016x}-{}", text.len())
}
