//! Writes the sources of the site: a copy of the pages with the layout of the repository, so that
//! links between them stay as they are.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::links::{is_external, resolve};
use super::summary::{SUMMARY, is_decision, listed_pages, site_path, site_summary};

pub(super) fn write(root: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).context("cannot remove the old sources of the site")?;
    }
    let pages = to.join("src");
    let summary = read(root, SUMMARY)?;
    let decisions = decisions(root)?;
    let mut paths = listed_pages(&summary);
    paths.extend(decisions.iter().map(|(path, _)| path.clone()));
    for page in &paths {
        let text = rewrite_links(&read(root, page)?, page, root, &pages)?;
        put(&pages.join(site_path(page)), text.as_bytes())?;
    }
    put(
        &pages.join("SUMMARY.md"),
        site_summary(&summary, &decisions).as_bytes(),
    )?;
    for name in ["book.toml", "site.css"] {
        put(
            &to.join(name),
            read(root, &format!("docs/{name}"))?.as_bytes(),
        )?;
    }
    Ok(())
}

/// Returns path and title of every decision, sorted.
fn decisions(root: &Path) -> Result<Vec<(String, String)>> {
    let mut decisions = Vec::new();
    for entry in fs::read_dir(root.join("docs/decisions")).context("cannot list decisions")? {
        let path = format!("docs/decisions/{}", entry?.file_name().to_string_lossy());
        if is_decision(&path) {
            let text = read(root, &path)?;
            let title = text.lines().next().unwrap_or_default();
            decisions.push((path.clone(), title.trim_start_matches("# ").to_owned()));
        }
    }
    decisions.sort();
    Ok(decisions)
}

/// Adapts the links of a page: files of the repository are copied beside the pages, and links to
/// folders and to the table of contents become plain text. Pages have no HTML: what looks like a
/// tag is a placeholder.
fn rewrite_links(text: &str, page: &str, root: &Path, pages: &Path) -> Result<String> {
    let dir = page.rfind('/').map_or("", |slash| &page[..=slash]);
    let mut rewritten = String::with_capacity(text.len());
    let mut is_fenced = false;
    for line in text.split_inclusive('\n') {
        is_fenced ^= line.trim_start().starts_with("```");
        let escaped = if is_fenced {
            line.to_owned()
        } else {
            escape_tags(line)
        };
        let mut rest = escaped.as_str();
        while !is_fenced && let Some((before, after)) = rest.split_once("](") {
            let (target, after) = after.split_once(')').unwrap_or((after, ""));
            let (path, _) = target.split_once('#').unwrap_or((target, ""));
            let file = root.join(resolve(dir, path));
            rest = after;
            if path.is_empty() || is_external(target) {
                rewritten.push_str(&format!("{before}]({target})"));
            } else if file.is_dir() || file.ends_with(SUMMARY) {
                let (before, label) = before.rsplit_once('[').unwrap_or((before, ""));
                rewritten.push_str(&format!("{before}{label}"));
            } else {
                if !path.ends_with(".md") {
                    let contents = fs::read(&file);
                    let contents = contents.with_context(|| format!("cannot read {path}"))?;
                    put(&pages.join(resolve(dir, path)), &contents)?;
                }
                let target = target.replacen("README.md", "index.md", 1);
                rewritten.push_str(&format!("{before}]({target})"));
            }
        }
        rewritten.push_str(rest);
    }
    Ok(rewritten)
}

/// Escapes `<` outside of code, except in links such as `<https://…>`.
fn escape_tags(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for (index, part) in line.split('`').enumerate() {
        if index > 0 {
            escaped.push('`');
        }
        let is_code = index % 2 == 1;
        for (index, piece) in part.split('<').enumerate() {
            if index > 0 {
                let is_link = piece.starts_with("http");
                escaped.push_str(if is_code || is_link { "<" } else { "&lt;" });
            }
            escaped.push_str(piece);
        }
    }
    escaped
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

fn put(path: &Path, contents: &[u8]) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, contents))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_escaped_and_code_is_not() {
        assert_eq!(
            escape_tags("| `a_<key>` | for <key>, <https://x.y> |\n"),
            "| `a_<key>` | for &lt;key>, <https://x.y> |\n"
        );
    }
}
