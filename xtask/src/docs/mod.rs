//! Builds the documentation as a site with mdBook. The pages are plain Markdown, to be read in a
//! terminal as well; docs/SUMMARY.md is their table of contents.

pub(crate) mod links;
mod site_links;
mod site_sources;
pub(crate) mod summary;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::step;

/// The version that is installed if there is none. Its settings are in docs/book.toml.
const MDBOOK: &str = "mdbook@0.5.4";

pub(crate) fn run() -> Result<()> {
    let mdbook = find_mdbook()?;
    let sources = step::root().join("target/site-sources");
    site_sources::write(step::root(), &sources)?;
    let site = step::root().join("target/site");
    let status = Command::new(&mdbook)
        .arg("build")
        .arg(&sources)
        .arg("--dest-dir")
        .arg(&site)
        .status()
        .with_context(|| format!("cannot start {}", mdbook.display()))?;
    ensure!(status.success(), "mdbook failed");
    let pages = site_links::check(&site)?;
    println!("docs: {pages} pages, {}", site.join("index.html").display());
    Ok(())
}

/// Returns mdBook: that of `$PATH`, else the one in target/tools, which is built if it is missing.
/// It is not a dependency of this workspace, because it would add two hundred crates to every
/// build.
fn find_mdbook() -> Result<PathBuf> {
    let is_there = |program: &Path| Command::new(program).arg("--version").output().is_ok();
    let installed = PathBuf::from("mdbook");
    if is_there(&installed) {
        return Ok(installed);
    }
    let tools = step::root().join("target/tools");
    let built = tools.join("bin/mdbook");
    if !is_there(&built) {
        println!("docs: installing {MDBOOK} in target/tools");
        let status = step::cargo_command()
            .args(["install", "--locked", "--quiet", MDBOOK])
            .args(["--no-default-features", "--features", "search", "--root"])
            .arg(&tools)
            .status();
        let status = status.context("cannot start cargo")?;
        ensure!(status.success(), "cannot install {MDBOOK}");
    }
    Ok(built)
}
