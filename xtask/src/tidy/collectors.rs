//! Every collector's file has its line in the registry.

use super::TidyIssue;
use super::tree::SourceTree;

const FOLDER: &str = "crates/collect/src/collectors/";
const REGISTRY: &str = "crates/collect/src/lib.rs";

pub fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let Some(registry) = tree.get(REGISTRY) else {
        return vec![TidyIssue::new(
            REGISTRY,
            "the registry of collectors is not there",
        )];
    };
    let collectors = tree
        .with_extension(&["rs"])
        .filter(|file| file.dir() == FOLDER);
    collectors
        .filter(|file| file.text.contains("static ENTRY: Entry"))
        .filter(|file| !registry.text.contains(&format!("&{}::ENTRY,", file.stem())))
        .map(|file| {
            TidyIssue::new(
                &file.path,
                format!("no line for this collector in {REGISTRY}"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_collector_is_found() {
        let tree = SourceTree::from_files(&[
            (
                REGISTRY,
                "pub static REGISTRY: &[&Entry] = &[\n    &cpu::ENTRY,\n];",
            ),
            (
                "crates/collect/src/collectors/cpu.rs",
                "pub static ENTRY: Entry = …",
            ),
            (
                "crates/collect/src/collectors/disk.rs",
                "pub static ENTRY: Entry = …",
            ),
            ("crates/collect/src/collectors/disk_info.rs", ""),
        ]);
        let places: Vec<String> = check(&tree).into_iter().map(|c| c.location).collect();
        assert_eq!(places, ["crates/collect/src/collectors/disk.rs"]);
    }
}
