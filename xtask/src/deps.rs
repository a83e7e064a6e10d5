//! Checks every dependency in the lock file: its licence, its source, and that it is not banned.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::step;

const LICENCES: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    // Public domain: a dependency of parquet.
    "CC0-1.0",
    "ISC",
    "MIT",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Banned packages and the reason. A name that ends with `*` is a prefix.
const BANS: [(&str, &str); 11] = [
    ("openssl*", "TLS is rustls"),
    ("native-tls", "TLS is rustls"),
    ("serde_yaml*", "archived; YAML is serde-saphyr"),
    ("sled", "the store is our own"),
    ("rust-embed*", "files are embedded with include_bytes!"),
    ("async-std", "one async runtime: tokio"),
    ("smol", "one async runtime: tokio"),
    ("datafusion*", "far larger than all of Pegel"),
    ("inventory", "registries are visible slices"),
    ("linkme", "registries are visible slices"),
    ("ring", "one crypto provider: aws-lc-rs"),
];

pub(crate) fn run() -> Result<()> {
    let metadata = step::cargo_output(&[
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--all-features",
    ])?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?;
    let built = built_packages()?;
    let mut issues = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let name = package["name"]
            .as_str()
            .context("cargo metadata has a package without name")?;
        let version = package["version"]
            .as_str()
            .context("cargo metadata has a package without version")?;
        issues.extend(
            check_package(package, &built)
                .into_iter()
                .map(|issue| format!("{name} {version}: {issue}")),
        );
        versions.entry(name).or_default().insert(version);
    }
    println!("{} packages, {} names", packages.len(), versions.len());
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let versions: Vec<&str> = versions.iter().copied().collect();
        println!(
            "note: {name} is built in {} versions: {}",
            versions.len(),
            versions.join(", ")
        );
    }
    for issue in &issues {
        println!("error: {issue}");
    }
    ensure!(
        issues.is_empty(),
        "{} errors in the dependencies",
        issues.len()
    );
    Ok(())
}

/// Returns the names of the packages that are built on some platform. The lock file, and thus
/// `cargo metadata`, also lists packages behind features that are never enabled.
fn built_packages() -> Result<BTreeSet<String>> {
    let tree = step::cargo_output(&[
        "tree",
        "--locked",
        "--workspace",
        "--all-features",
        "--target=all",
        "--edges=all",
        "--prefix=none",
        "--format={p}",
    ])?;
    let names = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

fn check_package(package: &Value, built: &BTreeSet<String>) -> Vec<String> {
    let mut issues = Vec::new();
    let name = package["name"].as_str().unwrap_or_default();
    let ban = BANS
        .iter()
        .find(|(pattern, _)| matches_pattern(pattern, name));
    if let Some((_, reason)) = ban.filter(|_| built.contains(name)) {
        issues.push(format!("banned package: {reason}"));
    }
    match package["source"].as_str() {
        None | Some(CRATES_IO) => {}
        Some(other) => issues.push(format!("source {other} is not accepted; use crates.io")),
    }
    match package["license"].as_str() {
        Some(licence) if is_accepted(licence) => {}
        Some(licence) => issues.push(format!(
            "licence {licence:?} is not accepted; see LICENCES in xtask/src/deps.rs"
        )),
        None => issues.push("no licence declared".to_owned()),
    }
    issues
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// Whether an SPDX expression can be satisfied with accepted licences. `/` is the deprecated form
/// of OR.
fn is_accepted(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let tokens = expression.replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = tokens.split_whitespace().collect();
    let mut position = 0;
    let accepted = any_of(&tokens, &mut position);
    accepted && position == tokens.len()
}

fn any_of(tokens: &[&str], position: &mut usize) -> bool {
    let mut accepted = all_of(tokens, position);
    while tokens.get(*position) == Some(&"OR") {
        *position += 1;
        accepted |= all_of(tokens, position);
    }
    accepted
}

fn all_of(tokens: &[&str], position: &mut usize) -> bool {
    let mut accepted = licence_term(tokens, position);
    while tokens.get(*position) == Some(&"AND") {
        *position += 1;
        accepted &= licence_term(tokens, position);
    }
    accepted
}

fn licence_term(tokens: &[&str], position: &mut usize) -> bool {
    let Some(&token) = tokens.get(*position) else {
        return false;
    };
    *position += 1;
    if token == "(" {
        let accepted = any_of(tokens, position);
        let is_closed = tokens.get(*position) == Some(&")");
        *position += 1;
        return accepted && is_closed;
    }
    let mut licence = token.to_owned();
    if tokens.get(*position) == Some(&"WITH") {
        licence = format!(
            "{licence} WITH {}",
            tokens.get(*position + 1).unwrap_or(&"")
        );
        *position += 2;
    }
    LICENCES.contains(&licence.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_accepted_if_an_alternative_is_on_the_list() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR GPL-2.0) AND GPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("GPL-2.0 WITH Classpath-exception-2.0", false),
            ("(MIT", false),
            ("MIT)", false),
            ("", false),
        ] {
            assert_eq!(is_accepted(expression), expected, "{expression}");
        }
    }

    #[test]
    fn bans_and_foreign_sources_are_found() {
        let package = serde_json::json!({
            "name": "openssl-sys", "license": "MIT", "source": "git+https://example.org/openssl",
        });
        let built = BTreeSet::from(["openssl-sys".to_owned(), "pegel".to_owned()]);
        let issues = check_package(&package, &built);
        assert_eq!(issues.len(), 2, "{issues:?}");
        let ours = serde_json::json!({"name": "pegel", "license": "MIT", "source": null});
        assert!(check_package(&ours, &built).is_empty());
        let only_locked = serde_json::json!({"name": "ring", "license": "ISC", "source": null});
        assert!(check_package(&only_locked, &built).is_empty());
    }
}
