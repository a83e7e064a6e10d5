//! Finds Rust files and functions that Markdown files cite and that do not exist: `FILE` or `FILE:
//! FUNCTION`.

use super::TidyIssue;
use super::tree::SourceTree;

/// Directories with Rust code. Other paths are relative to a file that the text names before.
const ROOTS: [&str; 6] = ["bench/", "clients/", "crates/", "fuzz/", "tests/", "xtask/"];
/// Stands for any file in instructions.
const PLACEHOLDER: &str = "/NAME.rs";

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    for page in tree.with_extension(&["md"]) {
        for (index, line) in page.text.lines().enumerate() {
            for citation in citations(line).filter(|citation| !exists(tree, citation)) {
                let text = format!("{citation:?} not found; expected `FILE` or `FILE: FUNCTION`");
                issues.push(TidyIssue::at(page, index, text));
            }
        }
    }
    issues
}

/// Returns the text between backticks that begins with the path of a Rust file.
fn citations(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|text| {
        let path = text.split(": ").next().unwrap_or_default();
        let is_path = ROOTS.iter().any(|root| path.starts_with(root)) && path.ends_with(".rs");
        is_path && !path.contains(['*', ' ']) && !path.ends_with(PLACEHOLDER)
    })
}

fn exists(tree: &SourceTree, citation: &str) -> bool {
    let (path, function) = citation.split_once(": ").unwrap_or((citation, ""));
    tree.get(path)
        .is_some_and(|file| function.is_empty() || file.text.contains(&format!("fn {function}(")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_and_functions_are_found() {
        let page = "`tests/a.rs: holds` `tests/a.rs`\n`tests/a.rs: gone`\n`crates/gone.rs`\n`crates/NAME.rs` `b.rs`\n";
        let tree = SourceTree::from_files(&[("docs/p.md", page), ("tests/a.rs", "fn holds() {}")]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["docs/p.md:2", "docs/p.md:3"]);
    }
}
