//! The label keys of each metric, extracted from the golden files of the collectors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Label keys by metric name.
#[derive(Debug, Default)]
pub(crate) struct GoldenLabels(BTreeMap<String, BTreeSet<String>>);

impl GoldenLabels {
    /// Reads all golden files below a directory.
    pub(crate) fn read(folder: &Path) -> GoldenLabels {
        let mut labels = GoldenLabels::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let text = fs::read_to_string(&path).expect("a golden file");
                    text.lines().for_each(|line| labels.add_line(line));
                }
            }
        }
        labels
    }

    /// Adds a line such as `name{key="value",…} 1 gauge`.
    fn add_line(&mut self, line: &str) {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, mut rest) = line.split_at(end);
        let keys = self.0.entry(name.to_owned()).or_default();
        while let Some((key, value)) = rest.trim_start_matches(['{', ',']).split_once("=\"") {
            if rest.starts_with(['}', ' ']) {
                break;
            }
            keys.insert(key.to_owned());
            rest = after_quote(value);
        }
    }

    /// Returns the label keys of a family. A name with a placeholder `<…>` matches several names;
    /// their keys are merged.
    pub(crate) fn of_family(&self, family: &str) -> Vec<&str> {
        let parts = family.split_once('<').and_then(|(before, rest)| {
            let (_, after) = rest.rsplit_once('>')?;
            Some((before, after))
        });
        let matches = |name: &str| match parts {
            Some((before, after)) => name.starts_with(before) && name.ends_with(after),
            None => name == family,
        };
        let found = self.0.iter().filter(|(name, _)| matches(name));
        let keys: BTreeSet<&str> = found
            .flat_map(|(_, keys)| keys.iter().map(String::as_str))
            .collect();
        keys.into_iter().collect()
    }
}

/// Returns the text after the closing quote of a value; escaped quotes are skipped.
fn after_quote(value: &str) -> &str {
    let mut is_escaped = false;
    for (index, character) in value.char_indices() {
        match character {
            '"' if !is_escaped => return &value[index + 1..],
            _ => is_escaped = character == '\\' && !is_escaped,
        }
    }
    ""
}

#[test]
fn keys_are_found_next_to_any_values() {
    let mut labels = GoldenLabels::default();
    labels.add_line("a_total{b=\"x\\\"},y=\\\"\",c=\"\\\\\"} 1 counter");
    labels.add_line("a_total{d=\"1 = 2\"} 1 counter");
    labels.add_line("plain 1 gauge");
    labels.add_line("node_memory_X_bytes{n=\"=\"} 1 gauge");
    assert_eq!(labels.of_family("a_total"), ["b", "c", "d"]);
    assert!(labels.of_family("plain").is_empty());
    assert_eq!(labels.of_family("node_memory_<key>_bytes"), ["n"]);
    assert!(labels.of_family("unknown").is_empty());
}
