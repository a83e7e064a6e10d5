//! Refuses comments that are wider than the code. rustfmt wraps comments on nightly only.

use super::TidyIssue;
use super::tree::SourceTree;

/// The width of a line of code (`max_width`, rustfmt's default).
const COMMENT_WIDTH: usize = 100;

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        // Layouts of files and messages stand between fences.
        let mut is_fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            is_fenced ^= line.trim_start().starts_with("//") && line.contains("```");
            let width = line.chars().count();
            if width > COMMENT_WIDTH && !is_fenced && is_prose(line.trim_start()) {
                let text = format!("comment is {width} columns wide; wrap it at {COMMENT_WIDTH}");
                issues.push(TidyIssue::at(file, index, text));
            }
        }
    }
    issues
}

/// Recognises text that can be wrapped: not a row of a table or a drawing, nor a single long word.
fn is_prose(line: &str) -> bool {
    let Some(text) = line.strip_prefix("//") else {
        return false;
    };
    let text = text.trim_start_matches(['/', '!']).trim_start();
    !text.starts_with('|') && !text.contains(['─', '│']) && text.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_prose_is_found_and_tables_and_layouts_are_left_alone() {
        let words = "a word ".repeat(16);
        let text = format!(
            "/// {words}\n//! | {words}|\n//! ```text\n//! {words}\n//! ```\nlet a = \"{words}\";\n    // short\n"
        );
        let tree = SourceTree::from_files(&[("a.rs", &text)]);
        let issues = check(&tree);
        assert_eq!(issues.len(), 1, "{issues:?}");
        assert!(issues[0].text.ends_with("wrap it at 100"), "{issues:?}");
    }
}
