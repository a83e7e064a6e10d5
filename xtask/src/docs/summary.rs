//! The table of contents of the documentation: `docs/SUMMARY.md`, in mdBook's format.

use std::fmt::Write;

use crate::docs::links::{link_targets, resolve};

pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";
pub(crate) const DECISIONS: &str = "docs/decisions/README.md";

/// Returns the listed pages in their order, relative to the root of the repository.
pub(crate) fn listed_pages(summary: &str) -> Vec<String> {
    let links = link_targets(summary).into_iter();
    links.map(|(_, target)| resolve("docs/", target)).collect()
}

/// Returns whether a path is the page of one decision: `docs/decisions/0001-….md`.
pub(crate) fn is_decision(path: &str) -> bool {
    path.strip_prefix("docs/decisions/")
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()) && name.ends_with(".md"))
}

/// Returns the table of contents of the site, with paths relative to its root. Decisions, given as
/// path and title, follow the page that lists them.
pub(super) fn site_summary(summary: &str, decisions: &[(String, String)]) -> String {
    let mut text = String::new();
    for line in summary.lines() {
        let Some((before, rest)) = line.split_once("](") else {
            let _ = writeln!(text, "{line}");
            continue;
        };
        let (target, after) = rest.split_once(')').unwrap_or((rest, ""));
        let page = resolve("docs/", target);
        let _ = writeln!(text, "{before}]({}){after}", site_path(&page));
        if page == DECISIONS {
            for (path, title) in decisions {
                let _ = writeln!(text, "  - [{title}]({path})");
            }
        }
    }
    text
}

/// Returns the path of a page in the sources of the site: the page of a folder is `index.md` there.
pub(super) fn site_path(page: &str) -> String {
    match page.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => page.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_site_begin_at_its_root_and_decisions_are_added() {
        let summary = "# Summary\n\n[Intro](../README.md)\n\n- [A](a.md)\n- [Decisions](decisions/README.md)\n";
        let decisions = [("docs/decisions/0001-x.md".to_owned(), "0001: x".to_owned())];
        assert_eq!(
            site_summary(summary, &decisions),
            "# Summary\n\n[Intro](index.md)\n\n- [A](docs/a.md)\n- [Decisions](docs/decisions/index.md)\n  - [0001: x](docs/decisions/0001-x.md)\n"
        );
        assert_eq!(
            listed_pages(summary),
            ["README.md", "docs/a.md", "docs/decisions/README.md"]
        );
        assert!(is_decision("docs/decisions/0001-x.md") && !is_decision(DECISIONS));
    }
}
