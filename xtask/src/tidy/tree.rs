//! The source tree that the checks run on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The text files of the repository, sorted by path.
#[derive(Debug)]
pub(super) struct SourceTree {
    pub files: Vec<SourceFile>,
}

#[derive(Debug)]
pub(super) struct SourceFile {
    /// Path relative to the root, with `/` as separator.
    pub path: String,
    pub text: String,
}

/// Directories that are skipped: build output, third-party files, and test data.
const SKIPPED: [&str; 5] = [".git", "target", "fixtures", "golden", "node_modules"];

impl SourceTree {
    pub(super) fn read(root: &Path) -> Result<SourceTree> {
        let mut files = Vec::new();
        walk(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(SourceTree { files })
    }

    #[cfg(test)]
    pub(super) fn from_files(files: &[(&str, &str)]) -> SourceTree {
        let files = files.iter().map(|&(path, text)| SourceFile {
            path: path.into(),
            text: text.into(),
        });
        SourceTree {
            files: files.collect(),
        }
    }

    pub(super) fn get(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(super) fn with_extension<'a>(
        &'a self,
        extensions: &'a [&str],
    ) -> impl Iterator<Item = &'a SourceFile> {
        self.files
            .iter()
            .filter(|file| extensions.contains(&file.extension()))
    }
}

impl SourceFile {
    pub(super) fn extension(&self) -> &str {
        self.path
            .rsplit_once('.')
            .map_or("", |(_, extension)| extension)
    }

    /// Returns the directory with a trailing `/`; empty for the root.
    pub(super) fn dir(&self) -> &str {
        self.path
            .rfind('/')
            .map_or("", |slash| &self.path[..=slash])
    }

    /// Returns the file name without directory and extension.
    pub(super) fn stem(&self) -> &str {
        let name = &self.path[self.dir().len()..];
        name.split_once('.').map_or(name, |(stem, _)| stem)
    }
}

fn walk(dir: &Path, prefix: &str, files: &mut Vec<SourceFile>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let kind = entry
            .file_type()
            .with_context(|| format!("cannot stat {name}"))?;
        let path = format!("{prefix}{name}");
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(SourceFile { path, text });
        }
    }
    Ok(())
}
