//! Loads a configuration file and its includes into one [`ConfigTree`].
//!
//! Limits: 1 MiB per file, includes nested at most 8 deep, 1,000 files in total. Maps from several
//! files are merged. Any other key may be set once over all files: a duplicate is an error that
//! names both positions, because no order of precedence between files would be obvious.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::glob_matches;
use pegel_plain_file::read_plain;

use crate::config_tree::{ConfigEntry, ConfigOrigin, ConfigTree, ConfigValue};
use crate::problem::{ConfigError, ConfigProblem};
use crate::setting::Setting;
use crate::yaml;

/// The maximum size of one file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// The maximum nesting depth of includes.
pub const INCLUDE_DEPTH_MAX: usize = 8;
/// The maximum number of files, all includes together.
pub const FILES_MAX: usize = 1000;

/// Reads a file and its includes. The `include` key of the first file stays in the tree.
pub fn load(path: &Path) -> Result<ConfigTree, ConfigError> {
    let mut loader = Loader {
        open: Vec::new(),
        files: 0,
        problems: Vec::new(),
    };
    let tree = loader.load_file(path, None);
    match tree {
        Some(tree) if loader.problems.is_empty() => Ok(tree),
        _ => Err(ConfigError {
            problems: loader.problems,
        }),
    }
}

struct Loader {
    /// The files being read, outermost first: an include of one of them is a cycle.
    open: Vec<PathBuf>,
    files: usize,
    problems: Vec<ConfigProblem>,
}

impl Loader {
    /// Loads one file; `from` is the item of the `include` list that names it.
    fn load_file(&mut self, path: &Path, from: Option<&ConfigTree>) -> Option<ConfigTree> {
        match self.enter(path) {
            Ok(real) => {
                self.open.push(real);
                let tree = self.parse_file(path, from);
                self.open.pop();
                tree
            }
            Err(message) => self.fail(path, from, message),
        }
    }

    fn enter(&mut self, path: &Path) -> Result<PathBuf, String> {
        let real =
            fs::canonicalize(path).map_err(|error| format!("cannot read the file: {error}"))?;
        if self.open.contains(&real) {
            return Err("the file includes itself".to_owned());
        }
        if self.open.len() > INCLUDE_DEPTH_MAX {
            return Err(format!("includes nest more than {INCLUDE_DEPTH_MAX} deep"));
        }
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(format!(
                "the configuration includes more than {FILES_MAX} files"
            ));
        }
        Ok(real)
    }

    fn parse_file(&mut self, path: &Path, from: Option<&ConfigTree>) -> Option<ConfigTree> {
        let text = match read_text(path) {
            Ok(text) => text,
            Err(message) => return self.fail(path, from, message),
        };
        let mut tree = match yaml::parse(&Arc::from(path), &text) {
            Ok(tree) => tree,
            Err(problem) => {
                self.problems.push(problem);
                return None;
            }
        };
        if !matches!(tree.value, ConfigValue::Map(_)) {
            let message = format!(
                "expected keys at the top of the file, found {}",
                tree.kind()
            );
            self.problems.push(ConfigProblem::new(
                &tree,
                message,
                "write one `key: value` per line",
            ));
            return None;
        }
        if let Some(include) = tree.get("include").cloned() {
            self.load_includes(path, &include, &mut tree);
        }
        Some(tree)
    }

    fn load_includes(&mut self, path: &Path, include: &ConfigTree, tree: &mut ConfigTree) {
        let Some(patterns) = Vec::<String>::read(include, &mut self.problems) else {
            return;
        };
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        for (index, pattern) in patterns.iter().enumerate() {
            let item = match &include.value {
                ConfigValue::List(items) => &items[index],
                _ => include,
            };
            match matching_files(&dir, pattern) {
                Ok(paths) => {
                    for path in paths {
                        if let Some(mut other) = self.load_file(&path, Some(item)) {
                            // Its own includes are merged already.
                            other.remove("include");
                            merge(tree, other, &mut self.problems);
                        }
                    }
                }
                Err(message) => self.problems.push(ConfigProblem::new(item, message, "")),
            }
        }
    }

    fn fail(
        &mut self,
        path: &Path,
        from: Option<&ConfigTree>,
        message: String,
    ) -> Option<ConfigTree> {
        self.problems.push(match from {
            Some(item) => ConfigProblem::new(item, format!("{}: {message}", path.display()), ""),
            None => ConfigProblem {
                origin: None,
                key: path.display().to_string(),
                message,
                hint: String::new(),
            },
        });
        None
    }
}

/// Reads a file of at most 1 MiB as text, or describes why it cannot be read.
pub fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read_plain(path, FILE_BYTES_MAX + 1).map_err(|error| match error.kind() {
        // Not a regular file.
        ErrorKind::InvalidInput => error.to_string(),
        _ => format!("cannot read the file: {error}"),
    })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err("the file exceeds 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        format!("line {line} is not UTF-8")
    })
}

/// Returns the files that match a pattern relative to `dir`, sorted. Only the file name may contain
/// `*` and `?`.
pub fn matching_files(dir: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let path = dir.join(pattern);
    if !pattern.contains(['*', '?']) {
        return Ok(vec![path]);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(format!("\"{pattern}\" does not name a file"));
    };
    if parent.to_string_lossy().contains(['*', '?']) {
        return Err(format!(
            "\"{pattern}\": only the file name may contain * and ?"
        ));
    }
    let listed = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let entries = match fs::read_dir(listed) {
        Ok(entries) => entries,
        // A drop-in directory may be missing.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot list {}: {error}", parent.display())),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            let entry_name = entry.file_name();
            let entry_name = entry_name.to_string_lossy();
            !entry_name.starts_with('.') && glob_matches(name, &entry_name)
        })
        .map(|entry| parent.join(entry.file_name()))
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Adds the keys of `other` to `tree`. Maps are merged; any other duplicate key is a problem.
fn merge(tree: &mut ConfigTree, other: ConfigTree, problems: &mut Vec<ConfigProblem>) {
    let (ConfigValue::Map(entries), ConfigValue::Map(others)) = (&mut tree.value, other.value)
    else {
        return;
    };
    for new in others {
        match entries.iter_mut().find(|entry| entry.key == new.key) {
            None => entries.push(new),
            Some(old) if are_maps(old, &new) => merge(&mut old.value, new.value, problems),
            Some(old) => problems.push(duplicate_key(&old.origin, &new)),
        }
    }
}

fn are_maps(old: &ConfigEntry, new: &ConfigEntry) -> bool {
    matches!(
        (&old.value.value, &new.value.value),
        (ConfigValue::Map(_), ConfigValue::Map(_))
    )
}

fn duplicate_key(first: &ConfigOrigin, second: &ConfigEntry) -> ConfigProblem {
    ConfigProblem {
        origin: Some(second.origin.clone()),
        key: second.value.path.clone(),
        message: format!("duplicate key; first set at {first}"),
        hint: "keep one of the two".to_owned(),
    }
}
