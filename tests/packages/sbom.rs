//! The software bill of materials.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use pegel_testkit::{REPOSITORY, need_peer};
use serde_json::Value;

use crate::built_packages::{packages, succeed};

#[test]
fn the_sbom_is_valid_cyclonedx() {
    let Some(packages) = packages() else { return };
    let Some(python) = need_peer("cyclonedx/bin/python") else {
        return;
    };
    let check = "import sys\n\
        from cyclonedx.schema import SchemaVersion\n\
        from cyclonedx.validation.json import JsonStrictValidator\n\
        text = open(sys.argv[1]).read()\n\
        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)\n\
        sys.exit(str(error) if error else 0)\n";
    let sbom = packages.find(".cdx.json");
    succeed(Command::new(&python).args(["-c", check]).arg(&sbom));
    // The validator finds errors.
    let broken = packages.dir.join("broken.json");
    let text = fs::read_to_string(&sbom).expect("a text");
    fs::write(&broken, text.replace("\"required\"", "\"needed\"")).expect("written");
    let checked = Command::new(&python)
        .args(["-c", check])
        .arg(&broken)
        .output();
    fs::remove_file(&broken).expect("written");
    assert!(!checked.expect("it starts").status.success());
}

/// `cargo tree` is another way to the same list.
#[test]
fn the_sbom_lists_every_crate_that_is_compiled_in() {
    let Some(packages) = packages() else { return };
    let text = fs::read_to_string(packages.find(".cdx.json")).expect("a text");
    let sbom: Value = serde_json::from_str(&text).expect("JSON");
    let components = sbom["components"].as_array().expect("a list");
    let listed: BTreeSet<String> = components
        .iter()
        .filter(|component| component["scope"] == "required")
        .map(|component| {
            let text = |key: &str| component[key].as_str().expect("a text").to_owned();
            format!("{} v{}", text("name"), text("version"))
        })
        .collect();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args([
            "--package",
            "pegel",
            "--package",
            "pegel-mpi-shim",
            "--package",
            "pegel-python",
        ])
        .args(["--format", "{p}"])
        .current_dir(REPOSITORY);
    let tree = succeed(&mut command);
    let mut count = 0;
    for line in tree.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            continue;
        };
        let library = format!("{name} {version}");
        assert!(listed.contains(&library), "{library} is not listed");
        count += 1;
    }
    assert!(count > 100, "{tree}");
    // Every published crate has the checksum of the lock file.
    let lock = fs::read_to_string(format!("{REPOSITORY}/Cargo.lock")).expect("a text");
    for component in components {
        let name = component["name"].as_str().expect("a text");
        if name.starts_with("pegel") {
            continue;
        }
        let hash = component["hashes"][0]["content"]
            .as_str()
            .expect("a checksum");
        assert!(lock.contains(hash), "{name}");
    }
}
