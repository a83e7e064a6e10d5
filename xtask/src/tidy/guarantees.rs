//! Every promise in docs/guarantees.md names a test that is there.

use super::TidyIssue;
use super::tree::SourceTree;

const PAGE: &str = "docs/guarantees.md";

pub fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let Some(page) = tree.get(PAGE) else {
        return vec![TidyIssue::new(PAGE, "is not there")];
    };
    let mut complaints = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        for proof in cited_tests(line) {
            let is_there = proof.split_once(": ").is_some_and(|(path, name)| {
                tree.get(path)
                    .is_some_and(|file| file.text.contains(&format!("fn {name}(")))
            });
            if !is_there {
                complaints.push(TidyIssue::at(page, index, format!("no test {proof:?}")));
            }
        }
    }
    complaints
}

/// The last cell of a table's row, one test or several, unless it is a heading or the line below one.
fn cited_tests(line: &str) -> Vec<&str> {
    let cells = line
        .strip_prefix("| ")
        .and_then(|line| line.strip_suffix(" |"));
    match cells.and_then(|cells| cells.rsplit_once(" | ")) {
        Some((_, last)) if last != "test" => last
            .split(", ")
            .map(|proof| proof.trim_matches('`'))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_without_its_test_is_found() {
        let page = "| promise | test |\n|---|---|\n| a | `t.rs: holds` |\n| b | `t.rs: holds`, `t.rs: gone` |\n| c | soon |\n";
        let tree = SourceTree::from_files(&[(PAGE, page), ("t.rs", "fn holds() {}")]);
        let places: Vec<String> = check(&tree).into_iter().map(|c| c.location).collect();
        assert_eq!(places, ["docs/guarantees.md:4", "docs/guarantees.md:5"]);
    }
}
