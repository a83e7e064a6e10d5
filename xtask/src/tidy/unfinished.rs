//! Marks of unfinished work need the number of an issue: `#12`.

use super::TidyIssue;
use super::tree::SourceTree;

/// In two parts, so that this file does not find itself.
const MARKS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const MACROS: [&str; 2] = [concat!("to", "do!("), concat!("unimpl", "emented!(")];

pub fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut complaints = Vec::new();
    for file in tree.with_extension(&["rs", "md", "sh", "toml", "yaml", "js", "py", "c", "h"]) {
        for (index, line) in file.text.lines().enumerate() {
            let mark = MARKS.iter().find(|mark| has_word(line, mark));
            if let Some(mark) = mark.filter(|_| !has_issue_number(line)) {
                complaints.push(TidyIssue::at(
                    file,
                    index,
                    format!("{mark} without an issue number"),
                ));
            }
            if let Some(name) = MACROS.iter().find(|name| line.contains(**name)) {
                complaints.push(TidyIssue::at(
                    file,
                    index,
                    format!("{name}…) is not finished"),
                ));
            }
        }
    }
    complaints
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
    fn a_mark_needs_a_number() {
        let text = format!(
            "// {0}: later\n// {0}(#12): later\n// {0}S are fine\n",
            MARKS[0]
        );
        let tree = SourceTree::from_files(&[("a.rs", &text)]);
        let places: Vec<String> = check(&tree).into_iter().map(|c| c.location).collect();
        assert_eq!(places, ["a.rs:1"]);
    }
}
