//! Checks that markers of unfinished work carry an issue number such as `#12`.

use super::TidyIssue;
use super::tree::SourceTree;

/// Split in two, so that the check does not match this file.
const MARKERS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const MACROS: [&str; 2] = [concat!("to", "do!("), concat!("unimpl", "emented!(")];

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    for file in tree.with_extension(&["rs", "md", "sh", "toml", "yaml", "js", "py", "c", "h"]) {
        for (index, line) in file.text.lines().enumerate() {
            let marker = MARKERS.iter().find(|marker| has_word(line, marker));
            if let Some(marker) = marker.filter(|_| !has_issue_number(line)) {
                issues.push(TidyIssue::at(
                    file,
                    index,
                    format!("{marker} without an issue number; write {marker}(#12)"),
                ));
            }
            if let Some(name) = MACROS.iter().find(|name| line.contains(**name)) {
                issues.push(TidyIssue::at(
                    file,
                    index,
                    format!("unfinished code: {name}…)"),
                ));
            }
        }
    }
    issues
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .any(|part| part == word)
}

fn has_issue_number(line: &str) -> bool {
    line.split('#')
        .skip(1)
        .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_requires_an_issue_number() {
        let text = format!(
            "// {0}: later\n// {0}(#12): later\n// {0}S are fine\n",
            MARKERS[0]
        );
        let tree = SourceTree::from_files(&[("a.rs", &text)]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["a.rs:1"]);
    }
}
