//! Files that the program itself writes: they must be as it writes them today.

use std::fs;

use anyhow::{Context, Result};

use super::TidyIssue;
use super::tree::SourceTree;
use crate::{metrics_page, step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratedFilesMode {
    Check,
    Rewrite,
}

/// Made here, from what the registry of collectors says.
const METRICS: &str = "docs/metrics.md";

/// A file, and the arguments with which `pegel` prints it.
const FILES: [(&str, &[&str]); 1] = [("config/pegel.yaml", &["config", "init"])];

pub fn check(tree: &SourceTree, mode: GeneratedFilesMode) -> Result<Vec<TidyIssue>> {
    let mut complaints = Vec::new();
    for (path, args) in FILES {
        let mut cargo = vec!["run", "--locked", "--quiet", "--package", "pegel", "--"];
        cargo.extend(args);
        let fresh = step::cargo_output(&cargo)?;
        let source = format!("`pegel {}`", args.join(" "));
        complaints.extend(compare(tree, mode, path, &fresh, &source)?);
    }
    let fresh = metrics_page::page()?;
    let source = "what the collectors say";
    complaints.extend(compare(tree, mode, METRICS, &fresh, source)?);
    Ok(complaints)
}

fn compare(
    tree: &SourceTree,
    mode: GeneratedFilesMode,
    path: &str,
    fresh: &str,
    source: &str,
) -> Result<Option<TidyIssue>> {
    if tree.get(path).is_some_and(|file| file.text == fresh) {
        return Ok(None);
    }
    if mode == GeneratedFilesMode::Rewrite {
        fs::write(path, fresh).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
        return Ok(None);
    }
    let text = format!("differs from {source}; cargo xtask tidy --fix");
    Ok(Some(TidyIssue::new(path, text)))
}
