//! Files that the program itself writes: they must be as it writes them today.

use std::fs;

use anyhow::{Context, Result};

use super::Complaint;
use super::tree::Tree;
use crate::step;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generated {
    Check,
    Rewrite,
}

/// A file, and the arguments with which `pegel` prints it.
const FILES: [(&str, &[&str]); 1] = [("config/pegel.yaml", &["config", "init"])];

pub fn check(tree: &Tree, mode: Generated) -> Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for (path, args) in FILES {
        let mut cargo = vec!["run", "--locked", "--quiet", "--package", "pegel", "--"];
        cargo.extend(args);
        let fresh = step::cargo_output(&cargo)?;
        let is_stale = tree.get(path).is_none_or(|file| file.text != fresh);
        if is_stale && mode == Generated::Rewrite {
            fs::write(path, fresh).with_context(|| format!("cannot write {path}"))?;
            println!("wrote {path}");
        } else if is_stale {
            let text = format!(
                "differs from `pegel {}`; cargo xtask tidy --fix",
                args.join(" ")
            );
            complaints.push(Complaint::new(path, text));
        }
    }
    Ok(complaints)
}
