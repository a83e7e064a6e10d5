//! Checks that every guarantee in docs/guarantees.md names existing tests.

use super::TidyIssue;
use super::tree::SourceTree;

const PAGE: &str = "docs/guarantees.md";

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let Some(page) = tree.get(PAGE) else {
        return vec![TidyIssue::new(PAGE, "file not found")];
    };
    let mut issues = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        for test in cited_tests(line) {
            let exists = test.split_once(": ").is_some_and(|(path, name)| {
                tree.get(path)
                    .is_some_and(|file| file.text.contains(&format!("fn {name}(")))
            });
            if !exists {
                let text = format!("test {test:?} not found; expected `FILE: FUNCTION`");
                issues.push(TidyIssue::at(page, index, text));
            }
        }
    }
    issues
}

/// Returns the tests in the last cell of a table row; none for headings and separators.
fn cited_tests(line: &str) -> Vec<&str> {
    let cells = line
        .strip_prefix("| ")
        .and_then(|line| line.strip_suffix(" |"));
    match cells.and_then(|cells| cells.rsplit_once(" | ")) {
        Some((_, last)) if last != "test" => last
            .split(", ")
            .map(|test| test.trim_matches('`'))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_without_its_test_is_found() {
        let page = "| promise | test |\n|---|---|\n| a | `t.rs: holds` |\n| b | `t.rs: holds`, `t.rs: gone` |\n| c | soon |\n";
        let tree = SourceTree::from_files(&[(PAGE, page), ("t.rs", "fn holds() {}")]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["docs/guarantees.md:4", "docs/guarantees.md:5"]);
    }
}
