//! Lists the crates from which the program, the library that counts MPI calls and the Python module
//! are built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use super::release::Release;
use super::tool;
use crate::step;

/// The packages of a release. The library for MPI is built by a build script, so that cargo does
/// not list it as a dependency.
const ROOTS: [&str; 3] = ["pegel", "pegel-mpi-shim", "pegel-python"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DependencyUse {
    /// Compiled into a binary of the release, or a macro that its code uses.
    Linked,
    /// Only for a build script.
    Build,
}

#[derive(Debug)]
pub(super) struct Dependency {
    pub name: String,
    pub version: String,
    pub licence: String,
    pub repository: Option<String>,
    /// The directory with its sources.
    pub dir: PathBuf,
    pub is_ours: bool,
    /// SHA-256 of the published crate; none for our own.
    pub checksum: Option<String>,
    pub usage: DependencyUse,
    /// Package URLs.
    pub depends_on: BTreeSet<String>,
}

impl Dependency {
    /// Returns the package URL, which identifies the crate.
    pub(super) fn url(&self) -> String {
        package_url(&self.name, &self.version)
    }
}

/// All crates by package URL.
#[derive(Debug)]
pub(super) struct DependencyGraph {
    pub crates: BTreeMap<String, Dependency>,
    pub roots: Vec<String>,
}

impl DependencyGraph {
    pub(super) fn read(release: &Release) -> Result<DependencyGraph> {
        let platform = format!("{}-unknown-linux-gnu", release.arch);
        let metadata = step::cargo_output(&[
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--filter-platform",
            &platform,
        ])?;
        let metadata = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
        let lock = tool::read(&step::root().join("Cargo.lock"))?;
        let lock = String::from_utf8(lock).context("Cargo.lock is not UTF-8")?;
        DependencyGraph::from_metadata(&metadata, &checksums(&lock))
    }

    fn from_metadata(
        metadata: &Value,
        checksums: &BTreeMap<(String, String), String>,
    ) -> Result<DependencyGraph> {
        let packages = by_id(&metadata["packages"])?;
        let nodes = by_id(&metadata["resolve"]["nodes"])?;
        let root_ids = packages.iter().filter(|(_, package)| {
            let is_ours = package["source"].is_null();
            is_ours && ROOTS.iter().any(|root| package["name"] == *root)
        });
        let root_ids: Vec<&str> = root_ids.map(|(id, _)| *id).collect();
        let uses = reachable(&nodes, &root_ids);
        let url = |id: &str| {
            let package = packages.get(id).context("cargo metadata lacks a package")?;
            Ok(package_url(
                text(package, "name")?,
                text(package, "version")?,
            ))
        };
        let mut crates = BTreeMap::new();
        for (id, usage) in &uses {
            let package = packages.get(id).context("cargo metadata lacks a package")?;
            let mut dependency = describe(package, *usage, checksums)?;
            for (target, _) in edges(&nodes, id) {
                dependency.depends_on.insert(url(target)?);
            }
            crates.insert(dependency.url(), dependency);
        }
        let roots = root_ids.into_iter().map(url).collect::<Result<_>>()?;
        Ok(DependencyGraph { crates, roots })
    }
}

fn package_url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// Finds all packages that the roots use. A package that is both linked and used by a build script
/// counts as linked.
fn reachable<'a>(
    nodes: &BTreeMap<&'a str, &'a Value>,
    roots: &[&'a str],
) -> BTreeMap<&'a str, DependencyUse> {
    let mut uses = BTreeMap::new();
    let mut pending: Vec<(&str, DependencyUse)> = roots
        .iter()
        .map(|id| (*id, DependencyUse::Linked))
        .collect();
    while let Some((id, usage)) = pending.pop() {
        if uses.get(id).is_some_and(|known| *known <= usage) {
            continue;
        }
        uses.insert(id, usage);
        for (target, edge) in edges(nodes, id) {
            pending.push((target, edge.max(usage)));
        }
    }
    uses
}

/// Returns the dependencies of a package, without those of its tests.
fn edges<'a>(nodes: &BTreeMap<&'a str, &'a Value>, id: &str) -> Vec<(&'a str, DependencyUse)> {
    let Some(dependencies) = nodes.get(id).and_then(|node| node["deps"].as_array()) else {
        return Vec::new();
    };
    let mut edges = Vec::new();
    for dependency in dependencies {
        let kinds = dependency["dep_kinds"].as_array();
        let kinds = kinds.into_iter().flatten().map(|kind| &kind["kind"]);
        let usage = kinds
            .filter_map(|kind| match kind.as_str() {
                None => Some(DependencyUse::Linked),
                Some("build") => Some(DependencyUse::Build),
                Some(_) => None,
            })
            .min();
        if let (Some(id), Some(usage)) = (dependency["pkg"].as_str(), usage) {
            edges.push((id, usage));
        }
    }
    edges
}

fn describe(
    package: &Value,
    usage: DependencyUse,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Dependency> {
    let (name, version) = (text(package, "name")?, text(package, "version")?);
    let manifest = PathBuf::from(text(package, "manifest_path")?);
    let key = (name.to_owned(), version.to_owned());
    Ok(Dependency {
        name: name.to_owned(),
        version: version.to_owned(),
        // Old crates separate alternatives by a slash.
        licence: text(package, "license")?.replace('/', " OR "),
        repository: package["repository"].as_str().map(str::to_owned),
        dir: manifest.parent().map(PathBuf::from).unwrap_or_default(),
        is_ours: package["source"].is_null(),
        checksum: checksums.get(&key).cloned(),
        usage,
        depends_on: BTreeSet::new(),
    })
}

fn by_id(list: &Value) -> Result<BTreeMap<&str, &Value>> {
    let list = list.as_array().context("cargo metadata lacks a list")?;
    list.iter()
        .map(|item| Ok((text(item, "id")?, item)))
        .collect()
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    let found = value[key].as_str();
    found.with_context(|| format!("cargo metadata: {} has no {key:?}", value["id"]))
}

/// Reads the checksums from Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().trim_matches(['=', ' ', '"']).to_owned())
    };
    let entry = |block: &str| {
        let key = (field(block, "name ")?, field(block, "version ")?);
        Some((key, field(block, "checksum ")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn crates_for_tests_are_left_out_and_those_of_build_scripts_are_marked() {
        let package = |name: &str, source: Value| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "manifest_path": "/x/Cargo.toml", "source": source})
        };
        let edge = |name: &str, kinds: &[Value]| {
            let kinds: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind})).collect();
            json!({"pkg": name, "dep_kinds": kinds})
        };
        let metadata = json!({
            "packages": [package("pegel", Value::Null), package("a", json!("registry")), package("b", json!("registry")),
                package("c", json!("registry")), package("t", json!("registry"))],
            "resolve": {"nodes": [
                {"id": "pegel", "deps": [edge("a", &[Value::Null]), edge("b", &[json!("build")]), edge("t", &[json!("dev")])]},
                {"id": "a", "deps": [edge("c", &[Value::Null])]},
                {"id": "b", "deps": [edge("c", &[Value::Null])]},
                {"id": "c", "deps": []},
                {"id": "t", "deps": []},
            ]},
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \"5e\"\n";
        let graph = DependencyGraph::from_metadata(&metadata, &checksums(lock)).expect("valid");
        let found: Vec<(&str, DependencyUse)> = graph
            .crates
            .values()
            .map(|found| (found.name.as_str(), found.usage))
            .collect();
        let linked = DependencyUse::Linked;
        assert_eq!(
            found,
            [
                ("a", linked),
                ("b", DependencyUse::Build),
                ("c", linked),
                ("pegel", linked)
            ]
        );
        let a = &graph.crates["pkg:cargo/a@1.0.0"];
        assert_eq!(a.checksum.as_deref(), Some("5e"));
        assert_eq!(a.licence, "MIT OR Apache-2.0");
        let pegel = &graph.crates["pkg:cargo/pegel@1.0.0"];
        assert!(pegel.depends_on.contains("pkg:cargo/a@1.0.0"));
        assert!(!pegel.depends_on.contains("pkg:cargo/t@1.0.0"));
    }
}
