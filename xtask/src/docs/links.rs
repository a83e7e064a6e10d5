//! Links in Markdown.

/// Returns the targets of `[text](target)` with their line indices; code fences are skipped.
pub(crate) fn link_targets(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        is_fenced ^= line.trim_start().starts_with("```");
        if is_fenced {
            continue;
        }
        for rest in line.split("](").skip(1) {
            links.extend(rest.split(')').next().map(|target| (index, target)));
        }
    }
    links
}

/// Returns whether a target is outside the repository.
pub(crate) fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Resolves a path in a file of the directory `dir`, which ends with a slash or is empty.
pub(crate) fn resolve(dir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}
