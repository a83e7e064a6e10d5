//! Warns about long files and functions. Warnings do not fail the check.

use super::TidyIssue;
use super::tree::SourceTree;

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 80;

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut warnings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let lines: Vec<&str> = file.text.lines().collect();
        // Unit tests at the end of a file are not counted.
        let end = lines
            .iter()
            .position(|line| *line == "#[cfg(test)]")
            .unwrap_or(lines.len());
        if end > FILE_LINES {
            warnings.push(TidyIssue::new(
                &file.path,
                format!("file has {end} lines without tests; consider splitting it"),
            ));
        }
        for (index, line) in lines.iter().enumerate() {
            let length = function_length(&lines[index..]);
            if is_function(line) && length > FUNCTION_LINES {
                warnings.push(TidyIssue::at(
                    file,
                    index,
                    format!("function has {length} lines; consider splitting it"),
                ));
            }
        }
    }
    warnings
}

fn is_function(line: &str) -> bool {
    let mut words = line.trim_start().split(' ');
    let is_prefix =
        |word: &str| word.starts_with("pub") || ["const", "async", "unsafe"].contains(&word);
    words.find(|word| !is_prefix(word)) == Some("fn")
}

/// Counts lines up to the closing brace, which rustfmt indents like the declaration.
fn function_length(lines: &[&str]) -> usize {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let close = format!("{}}}", &lines[0][..indent]);
    lines
        .iter()
        .position(|line| *line == close)
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let long = format!(
            "pub(crate) async fn a() {{\n{}}}\n",
            "    b();\n".repeat(90)
        );
        let tree = SourceTree::from_files(&[("a.rs", &long), ("b.rs", "fn a() {\n    b();\n}\n")]);
        let warnings = check(&tree);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(
            warnings[0].text,
            "function has 92 lines; consider splitting it"
        );
    }
}
