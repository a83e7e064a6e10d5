//! Checks that a type name is defined once in the workspace, so that a search for a name finds one
//! idea. Exceptions are listed here with their reason.

use std::collections::BTreeMap;

use super::TidyIssue;
use super::tree::SourceTree;

/// Names that may be defined more than once, and the reason.
const EXCEPTIONS: [(&str, &str); 1] = [(
    "Timer",
    "the Rust client's timer wraps the lane's; both are what users look for",
)];

/// The folders that are searched: everything but third-party files and test data.
const FOLDERS: [&str; 6] = ["crates/", "clients/", "bench/", "xtask/", "fuzz/", "tests/"];

/// The first words of generated code, whose names are those of its definition.
const GENERATED: &str = "// This file is @generated";

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut first_by_name: BTreeMap<&str, String> = BTreeMap::new();
    let mut issues = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let is_searched = FOLDERS.iter().any(|folder| file.path.starts_with(folder));
        if !is_searched || file.text.starts_with(GENERATED) {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let Some(name) = defined_type(line) else {
                continue;
            };
            if EXCEPTIONS.iter().any(|(exception, _)| *exception == name) {
                continue;
            }
            let location = format!("{}:{}", file.path, index + 1);
            if let Some(first) = first_by_name.get(name) {
                let text = format!("type {name} is also defined at {first}; qualify one of them");
                issues.push(TidyIssue::at(file, index, text));
            } else {
                first_by_name.insert(name, location);
            }
        }
    }
    issues
}

/// Returns the name of the type that a line defines. Associated types and types of macros (`$name`)
/// do not count.
fn defined_type(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let mut words = line.split_whitespace();
    let mut word = words.next()?;
    while word.starts_with("pub") || word == "unsafe" || word == "super)" {
        word = words.next()?;
    }
    let is_definition = match word {
        "struct" | "enum" | "union" | "trait" => true,
        "type" => !is_indented,
        _ => false,
    };
    let name = words.next().filter(|_| is_definition)?;
    let end = name
        .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .unwrap_or(name.len());
    let name = &name[..end];
    name.starts_with(|first: char| first.is_ascii_uppercase())
        .then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_definition_is_found() {
        let tree = SourceTree::from_files(&[
            (
                "crates/a/src/lib.rs",
                "pub struct Place<T> {\n    type Err = u8;\nstruct $name;\n// struct Other\n",
            ),
            (
                "crates/b/src/lib.rs",
                "    pub(crate) enum Place {\ntype Err = u8;\nstruct Other;\n",
            ),
            ("docs/x.rs", "struct Other;\n"),
        ]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["crates/b/src/lib.rs:1"]);
    }
}
