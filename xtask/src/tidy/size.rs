//! Long files and functions, as warnings: a habit, not a limit.

use super::TidyIssue;
use super::tree::SourceTree;

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 80;

pub fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut warnings = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let lines: Vec<&str> = file.text.lines().collect();
        // Unit tests stand at the end and do not count.
        let end = lines
            .iter()
            .position(|line| *line == "#[cfg(test)]")
            .unwrap_or(lines.len());
        if end > FILE_LINES {
            warnings.push(TidyIssue::new(
                &file.path,
                format!("{end} lines without tests"),
            ));
        }
        for (index, line) in lines.iter().enumerate() {
            let length = function_length(&lines[index..]);
            if is_function(line) && length > FUNCTION_LINES {
                warnings.push(TidyIssue::at(
                    file,
                    index,
                    format!("a function of {length} lines"),
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

/// rustfmt puts the closing brace below the first letter of the declaration.
fn function_length(lines: &[&str]) -> usize {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let close = format!("{}}}", &lines[0][..indent]);
    lines
        .iter()
        .position(|line| *line == close)
        .map_or(1, |at| at + 1)
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
        assert_eq!(warnings[0].text, "a function of 92 lines");
    }
}
