//! Finds tests that start `pegel` without directories of its own. Such a test depends on agents,
//! lanes and installed libraries of the user who runs it, and leaves its own behind.

use super::TidyIssue;
use super::tree::SourceTree;

/// How a test must not start the binary; a program that starts it in turn (`sh`, `strace`) is
/// isolated itself.
const DIRECT_STARTS: [&str; 2] = ["Command::new(PEGEL", "Command::new(crate::PEGEL"];
/// The variable of cargo with the path of the binary, and the only type that takes it.
const PATH_VARIABLE: &str = "CARGO_BIN_EXE_pegel";
const PATH_TYPE: &str = "PegelBinary::at(";

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        if !file.path.starts_with("tests/") {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let is_direct = DIRECT_STARTS.iter().any(|start| line.contains(start));
            let is_bare_path = line.contains(PATH_VARIABLE) && !line.contains(PATH_TYPE);
            if is_direct || is_bare_path {
                let text =
                    "starts pegel without isolation; use PEGEL.command(&home) or PEGEL.agent()";
                issues.push(TidyIssue::at(file, index, text));
            }
        }
    }
    issues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_starts_the_binary_by_itself_is_found() {
        let tree = SourceTree::from_files(&[
            (
                "tests/a/main.rs",
                "const PEGEL: PegelBinary = PegelBinary::at(env!(\"CARGO_BIN_EXE_pegel\"));\n",
            ),
            (
                "tests/a/b.rs",
                "let a = PEGEL.command(&home);\nlet b = Command::new(PEGEL.path());\nenv!(\"CARGO_BIN_EXE_pegel\");\n",
            ),
        ]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["tests/a/b.rs:2", "tests/a/b.rs:3"]);
    }
}
