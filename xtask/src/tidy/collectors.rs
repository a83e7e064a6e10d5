//! Every collector's file has its line in the registry.

use super::Complaint;
use super::tree::Tree;

const FOLDER: &str = "crates/collect/src/collectors/";
const REGISTRY: &str = "crates/collect/src/lib.rs";

pub fn check(tree: &Tree) -> Vec<Complaint> {
    let Some(registry) = tree.get(REGISTRY) else {
        return vec![Complaint::new(
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
            Complaint::new(
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
        let tree = Tree::of(&[
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
        let places: Vec<String> = check(&tree).into_iter().map(|c| c.place).collect();
        assert_eq!(places, ["crates/collect/src/collectors/disk.rs"]);
    }
}
