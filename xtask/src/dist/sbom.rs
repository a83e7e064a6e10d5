//! Writes the software bill of materials as CycloneDX 1.6 JSON: every crate with version, licence,
//! checksum, and what it depends on.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::dependencies::{Dependency, DependencyGraph, DependencyUse};
use super::release::{LICENCE, Release, SUMMARY};
use super::tool;

/// Writes the file and returns its path.
pub(super) fn write(release: &Release, graph: &DependencyGraph) -> Result<PathBuf> {
    let path = release
        .out
        .join(format!("pegel-{}.cdx.json", release.version));
    let document = document(graph, release.version, &release.timestamp()?);
    let mut text = serde_json::to_string_pretty(&document).context("cannot write the SBOM")?;
    text.push('\n');
    tool::write(&path, text)?;
    Ok(path)
}

fn document(graph: &DependencyGraph, version: &str, timestamp: &str) -> Value {
    // The release as a whole: the packages of the workspace are its components.
    let release = format!("pegel-{version}");
    let components: Vec<Value> = graph.crates.values().map(component).collect();
    let roots: BTreeSet<&String> = graph.roots.iter().collect();
    let mut dependencies = vec![json!({"ref": release, "dependsOn": roots})];
    dependencies.extend(
        graph
            .crates
            .values()
            .map(|found| json!({"ref": found.url(), "dependsOn": found.depends_on})),
    );
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": timestamp,
            "component": {
                "type": "application",
                "bom-ref": release,
                "name": "pegel",
                "version": version,
                "description": SUMMARY,
                "licenses": [{"expression": LICENCE}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn component(found: &Dependency) -> Value {
    let scope = match found.usage {
        DependencyUse::Linked => "required",
        DependencyUse::Build => "excluded",
    };
    let mut component = json!({
        "type": "library",
        "bom-ref": found.url(),
        "name": found.name,
        "version": found.version,
        "scope": scope,
        "licenses": [{"expression": found.licence}],
        "purl": found.url(),
    });
    if let Some(checksum) = &found.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &found.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}
