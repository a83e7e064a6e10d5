//! Finds Rust files that no target includes through `mod`.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use super::TidyIssue;
use super::tree::SourceTree;
use crate::step;

pub(super) fn check(tree: &SourceTree) -> Result<Vec<TidyIssue>> {
    let metadata = step::cargo_output(&["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let root = format!("{}/", step::root().display());
    let mut targets = Vec::new();
    for package in metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?
    {
        for target in package["targets"]
            .as_array()
            .context("cargo metadata has a package without targets")?
        {
            let path = target["src_path"]
                .as_str()
                .context("cargo metadata has a target without source")?;
            targets.push(normalize(path.strip_prefix(&root).unwrap_or(path)));
        }
    }
    Ok(unreached(tree, targets))
}

fn unreached(tree: &SourceTree, targets: Vec<String>) -> Vec<TidyIssue> {
    let mut reached: BTreeSet<String> = BTreeSet::new();
    // Modules of a crate root are in its directory; those of `a.rs` are in `a/`.
    let mut pending: Vec<(String, bool)> = targets.into_iter().map(|path| (path, true)).collect();
    while let Some((path, is_root)) = pending.pop() {
        let Some(file) = tree.get(&path) else {
            continue;
        };
        if !reached.insert(path.clone()) {
            continue;
        }
        let is_in_directory = is_root || file.stem() == "mod";
        let module_dir = if is_in_directory {
            file.dir().to_owned()
        } else {
            format!("{}{}/", file.dir(), file.stem())
        };
        for module in modules(&file.text) {
            match module {
                ModDeclaration::Named(name) => {
                    pending.push((format!("{module_dir}{name}.rs"), false));
                    pending.push((format!("{module_dir}{name}/mod.rs"), false));
                }
                ModDeclaration::At(path) => {
                    pending.push((normalize(&format!("{}{path}", file.dir())), false))
                }
            }
        }
    }
    tree.with_extension(&["rs"])
        .filter(|file| !reached.contains(&file.path))
        .map(|file| {
            TidyIssue::new(
                &file.path,
                "file is not part of any target; add a `mod` declaration or remove it",
            )
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
enum ModDeclaration<'a> {
    Named(&'a str),
    At(&'a str),
}

fn modules(text: &str) -> Vec<ModDeclaration<'_>> {
    let mut modules = Vec::new();
    let mut path = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            path = rest.split('"').next();
            continue;
        }
        let declaration = match line.find("mod ") {
            Some(0) => Some(&line[4..]),
            Some(start) if line.starts_with("pub") && !line[..start - 1].contains(' ') => {
                Some(&line[start + 4..])
            }
            _ => None,
        };
        if let Some(name) = declaration.and_then(|rest| rest.strip_suffix(';')) {
            modules.push(
                path.take()
                    .map_or(ModDeclaration::Named(name), ModDeclaration::At),
            );
        }
    }
    modules
}

/// Resolves `a/../b`.
fn normalize(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_the_module_tree_are_found() {
        let tree = SourceTree::from_files(&[
            ("c/src/lib.rs", "mod a;\npub(crate) mod b;\n// mod gone;\n"),
            ("c/src/a.rs", "mod inner;\n"),
            ("c/src/a/inner.rs", ""),
            ("c/src/b/mod.rs", "pub mod deep;\n"),
            ("c/src/b/deep.rs", ""),
            ("c/src/gone.rs", ""),
            ("tests/x.rs", "#[path = \"../extra/y.rs\"]\nmod y;\n"),
            ("extra/y.rs", ""),
        ]);
        let targets = vec!["c/src/lib.rs".to_owned(), normalize("c/../tests/x.rs")];
        let locations: Vec<String> = unreached(&tree, targets)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["c/src/gone.rs"]);
    }
}
