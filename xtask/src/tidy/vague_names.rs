//! Names that say that the right name was not found yet.

use super::TidyIssue;
use super::tree::SourceTree;

const VAGUE: [&str; 7] = [
    "util", "utils", "common", "helper", "helpers", "types", "misc",
];

pub fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let vague = |file: &&super::tree::SourceFile| {
        file.path
            .split(['/', '.'])
            .any(|part| VAGUE.contains(&part.to_ascii_lowercase().as_str()))
    };
    let code = tree.with_extension(&["rs", "sh", "py", "c", "h", "js"]);
    code.filter(vague)
        .map(|file| TidyIssue::new(&file.path, "a name that says what is inside is wanted"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_names_are_found_in_files_and_folders() {
        let tree = SourceTree::from_files(&[
            ("a/utils.rs", ""),
            ("common/b.rs", ""),
            ("a/types_of_tea.rs", ""),
        ]);
        let places: Vec<String> = check(&tree).into_iter().map(|c| c.location).collect();
        assert_eq!(places, ["a/utils.rs", "common/b.rs"]);
    }
}
