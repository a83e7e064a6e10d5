//! Checks that every collector is listed in the registry.

use super::TidyIssue;
use super::tree::SourceTree;

const FOLDER: &str = "crates/collect/src/collectors/";
const REGISTRY: &str = "crates/collect/src/collectors/mod.rs";

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let Some(registry) = tree.get(REGISTRY) else {
        return vec![TidyIssue::new(REGISTRY, "registry of collectors not found")];
    };
    let collectors = tree
        .with_extension(&["rs"])
        .filter(|file| file.dir() == FOLDER);
    collectors
        .filter(|file| file.text.contains("static ENTRY: CollectorEntry"))
        .filter(|file| !registry.text.contains(&format!("&{}::ENTRY,", file.stem())))
        .map(|file| {
            TidyIssue::new(
                &file.path,
                format!("collector is missing from the registry in {REGISTRY}"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unregistered_collector_is_found() {
        let tree = SourceTree::from_files(&[
            (
                REGISTRY,
                "pub static REGISTRY: &[&Entry] = &[\n    &cpu::ENTRY,\n];",
            ),
            (
                "crates/collect/src/collectors/cpu.rs",
                "pub static ENTRY: CollectorEntry = …",
            ),
            (
                "crates/collect/src/collectors/disk.rs",
                "pub static ENTRY: CollectorEntry = …",
            ),
            ("crates/collect/src/collectors/disk_info.rs", ""),
        ]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["crates/collect/src/collectors/disk.rs"]);
    }
}
