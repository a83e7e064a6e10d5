//! A directory in which others keep files too. What we wrote there, and what it held, is in a list beside it, so
//! that nobody's file and nobody's change is written over.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Grafana reads only YAML and JSON files, and not this.
const MANIFEST_FILE: &str = "pegel-provisioned.txt";

/// A file to be: its path below the directory, and all that it holds.
#[derive(Debug)]
pub struct ProvisionedFile {
    pub path: String,
    pub text: String,
    /// Only for those who must read it.
    pub is_secret: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProvisionedState {
    New,
    /// As it should be.
    UpToDate,
    /// Ours, and as we left it.
    Outdated,
    /// Ours once; someone changed it since.
    Modified,
    /// Somebody else's.
    Foreign,
}

#[derive(Debug)]
pub struct ProvisioningDir {
    dir: PathBuf,
    /// What we wrote, by path: a sum over the text.
    checksums: BTreeMap<String, String>,
}

impl ProvisioningDir {
    pub fn open(dir: &Path) -> anyhow::Result<ProvisioningDir> {
        let shown = dir.display();
        match fs::metadata(dir) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => bail!("{shown} is not a directory"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!(
                    "there is no directory {shown}; Grafana's is usually /etc/grafana/provisioning. Make it, or name another with --dir"
                )
            }
            Err(error) => return Err(error).with_context(|| format!("cannot use {shown}")),
        }
        // Grafana wants a whole path, and a later run may be started elsewhere.
        let dir = fs::canonicalize(dir).with_context(|| format!("cannot use {shown}"))?;
        let list = dir.join(MANIFEST_FILE);
        let text = match fs::read_to_string(&list) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", list.display()));
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

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, wanted: &ProvisionedFile) -> PathBuf {
        self.dir.join(&wanted.path)
    }

    pub fn file_state(&self, wanted: &ProvisionedFile) -> anyhow::Result<ProvisionedState> {
        let path = self.path(wanted);
        let cannot = || format!("cannot look at {}", path.display());
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

    /// Whole or not at all: a reader finds the old file or the new one.
    pub fn write(&mut self, wanted: &ProvisionedFile) -> anyhow::Result<()> {
        let path = self.path(wanted);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| cannot_write(parent))?;
        }
        self.replace(&path, &wanted.text, wanted.is_secret)?;
        self.record(wanted);
        Ok(())
    }

    /// A file that is as it should be is ours from now on, whoever put it there.
    pub fn record(&mut self, wanted: &ProvisionedFile) {
        let sum = checksum(wanted.text.as_bytes());
        self.checksums.insert(wanted.path.clone(), sum);
    }

    /// Writes the list, unless it says so already.
    pub fn write_manifest(&self) -> anyhow::Result<()> {
        let mut text = "# What `pegel grafana provision` wrote here, with a sum of each file. It writes over these only.\n".to_owned();
        for (path, sum) in &self.checksums {
            text.push_str(&format!("{sum} {path}\n"));
        }
        let path = self.dir.join(MANIFEST_FILE);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        // A sum tells something about a secret.
        self.replace(&path, &text, true)
    }

    fn replace(&self, path: &Path, text: &str, is_secret: bool) -> anyhow::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // No ending that Grafana reads.
        let temporary = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
        let written = self
            .write_new(&temporary, text, is_secret)
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // It may never have been made.
            let _ = fs::remove_file(&temporary);
        }
        written.with_context(|| cannot_write(path))
    }

    fn write_new(&self, path: &Path, text: &str, is_secret: bool) -> io::Result<()> {
        // What was left by a run that was killed under the same number.
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

    /// Who besides root must read a secret: the group to which root gave the directory, as Grafana's packages do
    /// it. Other users write for a Grafana of their own.
    pub fn reader_group(&self) -> Option<u32> {
        let is_root = rustix::process::geteuid().is_root();
        let group = fs::metadata(&self.dir).ok()?.gid();
        (is_root && group != 0).then_some(group)
    }
}

fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write {}; run this as a user who may, such as root",
        path.display()
    )
}

/// To notice changes, not to resist them: FNV-1a and the length.
fn checksum(text: &[u8]) -> String {
    let sum = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{sum:016x}-{}", text.len())
}
