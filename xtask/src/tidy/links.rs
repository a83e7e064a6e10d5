//! Finds links in Markdown files to missing files or headings.

use super::TidyIssue;
use super::tree::SourceTree;
use crate::docs::links::{is_external, link_targets, resolve};
use crate::step;

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    check_with(tree, |path| step::root().join(path).exists())
}

fn check_with(tree: &SourceTree, exists: impl Fn(&str) -> bool) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    for file in tree.with_extension(&["md"]) {
        for (index, target) in link_targets(&file.text) {
            if is_external(target) {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let resolved = if path.is_empty() {
                file.path.clone()
            } else {
                resolve(file.dir(), path)
            };
            if !exists(&resolved) && tree.get(&resolved).is_none() {
                issues.push(TidyIssue::at(
                    file,
                    index,
                    format!("broken link: {target} does not exist"),
                ));
            } else if !anchor.is_empty()
                && let Some(to) = tree.get(&resolved)
                && !headings(&to.text).any(|heading| heading == anchor)
            {
                issues.push(TidyIssue::at(
                    file,
                    index,
                    format!("broken link: no heading for {target}"),
                ));
            }
        }
    }
    issues
}

/// Returns the anchors of headings: lower case, spaces as hyphens, other punctuation removed.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_found() {
        let tree = SourceTree::from_files(&[
            (
                "README.md",
                "[a](docs/a.md) [b](docs/gone.md)\n[c](docs/a.md#the-one) [d](https://x.y)",
            ),
            (
                "docs/a.md",
                "# The One\n[r](../README.md) [s](#nope) [t](#the-one)\n```\n[u](v)\n```\n",
            ),
        ]);
        let issues: Vec<String> = check_with(&tree, |_| false)
            .into_iter()
            .map(|issue| format!("{} {}", issue.location, issue.text))
            .collect();
        assert_eq!(
            issues,
            [
                "README.md:1 broken link: docs/gone.md does not exist",
                "docs/a.md:2 broken link: no heading for #nope"
            ]
        );
    }
}
