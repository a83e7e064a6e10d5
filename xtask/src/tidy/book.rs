//! Checks that the table of contents of the documentation, docs/SUMMARY.md, lists every page once.
//! Whether the listed pages exist is checked with all other links.

use std::collections::BTreeSet;

use super::TidyIssue;
use super::tree::SourceTree;
use crate::docs::summary::{DECISIONS, SUMMARY, is_decision, listed_pages};

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let Some(summary) = tree.get(SUMMARY) else {
        return vec![TidyIssue::new(SUMMARY, "file not found")];
    };
    let mut issues = Vec::new();
    let mut listed = BTreeSet::new();
    for page in listed_pages(&summary.text) {
        if !listed.insert(page.clone()) {
            issues.push(TidyIssue::new(SUMMARY, format!("lists {page} twice")));
        }
    }
    let decisions = tree.get(DECISIONS).map_or("", |file| file.text.as_str());
    for file in tree.with_extension(&["md"]) {
        let is_page = file.path.starts_with("docs/") && file.path != SUMMARY;
        if is_decision(&file.path) {
            // The site adds decisions by itself, below their table.
            let name = &file.path[file.dir().len()..];
            if !decisions.contains(&format!("({name})")) {
                issues.push(TidyIssue::new(DECISIONS, format!("does not list {name}")));
            }
        } else if is_page && !listed.contains(&file.path) {
            let text = format!(
                "does not list {}; add a line where readers expect it",
                file.path
            );
            issues.push(TidyIssue::new(SUMMARY, text));
        }
    }
    issues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_not_listed_or_listed_twice_are_found() {
        let tree = SourceTree::from_files(&[
            (
                SUMMARY,
                "# Summary\n[Intro](../README.md)\n- [A](a.md)\n- [A](a.md)\n- [D](decisions/README.md)\n",
            ),
            ("README.md", ""),
            ("docs/a.md", ""),
            ("docs/start/b.md", ""),
            (DECISIONS, "| [0001](0001-x.md) | x |"),
            ("docs/decisions/0001-x.md", ""),
            ("docs/decisions/0002-y.md", ""),
            ("crates/x/README.md", ""),
        ]);
        let issues: Vec<String> = check(&tree).into_iter().map(|issue| issue.text).collect();
        assert_eq!(
            issues,
            [
                "lists docs/a.md twice",
                "does not list docs/start/b.md; add a line where readers expect it",
                "does not list 0002-y.md",
            ]
        );
    }
}
