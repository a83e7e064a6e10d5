//! A configuration key by key, each with its origin: of this process, or of a running agent.

use std::path::{Path, PathBuf};

use pegel_agent::{Config, LoadedConfig};
use pegel_config::{ConfigError, ConfigOrigin, Setting};
use serde_json::Value;

/// The width up to which origins are aligned.
const ALIGNED_WIDTH_MAX: usize = 60;

/// The value of one key, as it is written in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigRow {
    /// The keys from the outermost section, joined with dots.
    pub key: String,
    pub value: String,
    pub origin: String,
}

impl ConfigRow {
    /// Returns whether the value comes from the file or is the default, not from an option or the
    /// environment of a process.
    pub(crate) fn is_from_file(&self) -> bool {
        !self.origin.starts_with("--") && !self.origin.starts_with('$')
    }
}

pub(crate) fn from_loaded(loaded: &LoadedConfig) -> Vec<ConfigRow> {
    let mut rows = Vec::new();
    loaded.config.to_value().visit_leaves(&mut |path, value| {
        let origin = loaded.origin_of(path).unwrap_or(&ConfigOrigin::Default);
        rows.push(ConfigRow {
            key: path.to_owned(),
            value: value.to_inline(),
            origin: origin.to_string(),
        });
    });
    rows
}

/// Parses the response of `/api/v1/config`. Malformed rows are skipped.
pub(crate) fn from_json(json: &Value) -> Vec<ConfigRow> {
    let rows = json.as_array().into_iter().flatten();
    rows.filter_map(|row| {
        let text = |key: &str| Some(row[key].as_str()?.to_owned());
        Some(ConfigRow {
            key: text("key")?,
            value: text("value")?,
            origin: text("place")?,
        })
    })
    .collect()
}

/// Writes a configuration file: one key per line, followed by the origin of its value.
pub(crate) fn to_yaml(rows: &[ConfigRow]) -> String {
    let mut lines: Vec<(String, Option<&str>)> = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for row in rows {
        let keys: Vec<&str> = row.key.split('.').collect();
        let Some((last, sections)) = keys.split_last() else {
            continue;
        };
        let same = open
            .iter()
            .zip(sections)
            .take_while(|(open, section)| open == section)
            .count();
        for (depth, section) in sections.iter().enumerate().skip(same) {
            lines.push((format!("{}{section}:", "  ".repeat(depth)), None));
        }
        open = sections.to_vec();
        let indent = "  ".repeat(sections.len());
        lines.push((format!("{indent}{last}: {}", row.value), Some(&row.origin)));
    }
    let width = lines
        .iter()
        .map(|(text, _)| text.chars().count())
        .max()
        .unwrap_or(0)
        .min(ALIGNED_WIDTH_MAX);
    let line = |(text, origin): &(String, Option<&str>)| match origin {
        Some(origin) => format!("{text:width$}  # {origin}\n"),
        None => format!("{text}\n"),
    };
    lines.iter().map(line).collect()
}

/// Reads the configuration that the rows describe. `file` is the file it was read from.
pub(crate) fn to_loaded(
    rows: &[ConfigRow],
    file: Option<PathBuf>,
) -> Result<LoadedConfig, ConfigError> {
    let tree = pegel_config::parse(Path::new("configuration of the agent"), &to_yaml(rows))?;
    let config: Config = pegel_config::read(&tree)?;
    Ok(LoadedConfig { config, tree, file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_as_the_same_configuration() {
        let loaded = pegel_agent::load_config(None, &[], &|_| None).expect("valid");
        let rows = from_loaded(&loaded);
        assert!(rows.iter().all(ConfigRow::is_from_file));
        let again = to_loaded(&rows, None).expect("valid");
        let values = |rows: &[ConfigRow]| -> Vec<(String, String)> {
            let pairs = rows.iter().map(|row| (row.key.clone(), row.value.clone()));
            pairs.collect()
        };
        assert_eq!(values(&from_loaded(&again)), values(&rows));
    }

    #[test]
    fn sections_are_written_once() {
        let row = |key: &str| ConfigRow {
            key: key.to_owned(),
            value: "1".to_owned(),
            origin: "--x".to_owned(),
        };
        let text = to_yaml(&[row("a"), row("b.c"), row("b.d.e"), row("b.f"), row("g")]);
        let expected = "a: 1      # --x\nb:\n  c: 1    # --x\n  d:\n    e: 1  # --x\n  f: 1    # --x\ng: 1      # --x\n";
        assert_eq!(text, expected);
    }
}
