//! Checks the links between the pages of the built site.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::links::{is_external, resolve};

/// Pages that mdBook adds: one with all chapters, a message, and the table of contents.
const ADDED: [&str; 3] = ["print.html", "404.html", "toc.html"];

/// Returns the number of pages; fails with all broken links.
pub(super) fn check(site: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    let mut files = BTreeSet::new();
    walk(site, "", &mut pages, &mut files)?;
    pages.retain(|path, _| !ADDED.contains(&path.as_str()));
    let mut broken = Vec::new();
    for (path, html) in &pages {
        let dir = path.rfind('/').map_or("", |slash| &path[..=slash]);
        for target in attributes(html, "href").chain(attributes(html, "src")) {
            if is_external(target) || target.starts_with("data:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() {
                path.clone()
            } else {
                resolve(dir, file)
            };
            let has_anchor =
                |html: &String| anchor.is_empty() || html.contains(&format!("id=\"{anchor}\""));
            if !files.contains(&to) || pages.get(&to).is_some_and(|html| !has_anchor(html)) {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    broken.dedup();
    ensure!(
        broken.is_empty(),
        "broken links in the site:\n{}",
        broken.join("\n")
    );
    Ok(pages.len())
}

/// Returns the values of an attribute in HTML that mdBook wrote, always with double quotes.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {name}=\"");
    let values: Vec<&str> = html
        .split(start.as_str())
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    values.into_iter()
}

fn walk(
    dir: &Path,
    prefix: &str,
    pages: &mut BTreeMap<String, String>,
    files: &mut BTreeSet<String>,
) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{path}/"), pages, files)?;
            continue;
        }
        if path.ends_with(".html") {
            let html = fs::read_to_string(entry.path());
            pages.insert(
                path.clone(),
                html.with_context(|| format!("cannot read {path}"))?,
            );
        }
        files.insert(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_and_anchors_are_found() {
        let site = std::env::temp_dir().join(format!("pegel-site-links-{}", std::process::id()));
        fs::create_dir_all(site.join("docs")).expect("a directory");
        let index = "<a class=\"x\" href=\"docs/a.html#one\">a</a> <a href=\"docs/gone.html\">b</a> <a href=\"https://x.y/z\">c</a>";
        fs::write(site.join("index.html"), index).expect("written");
        let page = "<h1 id=\"one\">One</h1> <a href=\"../index.html\">i</a> <a href=\"#two\">t</a>";
        fs::write(site.join("docs/a.html"), page).expect("written");
        let result = check(&site);
        fs::remove_dir_all(&site).expect("removed");
        let error = result.expect_err("broken").to_string();
        assert_eq!(
            error,
            "broken links in the site:\ndocs/a.html: #two\nindex.html: docs/gone.html"
        );
    }
}
