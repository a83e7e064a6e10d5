//! Finds files and directories with names that do not describe their content.

use super::TidyIssue;
use super::tree::SourceTree;

const VAGUE: [&str; 7] = [
    "util", "utils", "common", "helper", "helpers", "types", "misc",
];

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let vague = |file: &&super::tree::SourceFile| {
        file.path
            .split(['/', '.'])
            .any(|part| VAGUE.contains(&part.to_ascii_lowercase().as_str()))
    };
    let code = tree.with_extension(&["rs", "sh", "py", "c", "h", "js"]);
    code.filter(vague)
        .map(|file| TidyIssue::new(&file.path, "vague name; name the file after its content"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_names_of_files_and_directories_are_found() {
        let tree = SourceTree::from_files(&[
            ("a/utils.rs", ""),
            ("common/b.rs", ""),
            ("a/types_of_tea.rs", ""),
        ]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["a/utils.rs", "common/b.rs"]);
    }
}
