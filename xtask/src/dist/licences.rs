//! Collects the licences of the libraries that are compiled into the program: most of them require
//! that their text accompanies it.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;

use super::dependencies::{DependencyGraph, DependencyUse};
use super::package_files::{entries, file_name};
use super::tool;

/// The beginnings of the names of licence files, in upper case.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Returns a text with the name and licence of every library, and each distinct text once.
pub(super) fn third_party_notices(graph: &DependencyGraph) -> Result<String> {
    let mut list = String::new();
    // Texts with their numbers, in the order of the list.
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut texts: Vec<String> = Vec::new();
    let linked = graph
        .crates
        .values()
        .filter(|library| !library.is_ours && library.usage == DependencyUse::Linked);
    for library in linked {
        let mut used: Vec<String> = Vec::new();
        for path in entries(&library.dir)? {
            let name = file_name(&path).to_uppercase();
            if !path.is_file() || !NAMES.iter().any(|start| name.starts_with(start)) {
                continue;
            }
            let text = String::from_utf8_lossy(&tool::read(&path)?)
                .trim()
                .to_owned();
            let next = texts.len() + 1;
            let number = *numbers.entry(text.clone()).or_insert(next);
            if number == next {
                texts.push(text);
            }
            used.push(number.to_string());
        }
        let used = match used.is_empty() {
            true => "no text in the crate".to_owned(),
            false => format!("text {}", used.join(", ")),
        };
        let _ = writeln!(
            list,
            "{} {}: {} ({used})",
            library.name, library.version, library.licence
        );
    }
    let mut notices = format!("Pegel contains these libraries:\n\n{list}");
    for (index, text) in texts.iter().enumerate() {
        let _ = write!(notices, "\n======== text {}\n\n{text}\n", index + 1);
    }
    Ok(notices)
}
