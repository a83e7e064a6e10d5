//! Configuration files.

use std::fs;

use pegel_agent::Config;
use pegel_config::{Setting, load, read};
use pegel_testkit::TempDir;

use super::Target;
use crate::memory::bounded;

pub(super) const CONFIG: Target = Target {
    name: "config",
    run: config,
    dictionary: &[
        b"listen: ",
        b"dir: ",
        b"node: ",
        b"rate: ",
        b"level: ",
        b"keep: {memory: 5m}\n",
        b"limits: ",
        b"collectors: {cpu: {rate: 100ms}}\n",
        b"&a ",
        b"*a",
        b"<<: ",
        b"---\n",
        b"|\n",
        b"~",
        b"[",
        b"!!",
        b"500ms",
        b"1GiB",
        b"127.0.0.1:0",
        b"yes",
        b"include: []\n",
    ],
    seeds: || {
        let default = include_bytes!("../../../config/pegel.yaml").to_vec();
        let mut seeds: Vec<Vec<u8>> = [
            "rate: 500ms\nlevel: 3\nkeep: {memory: 5m, disk: 2d, bytes: 1GiB}\n",
            "listen: [\"127.0.0.1:1337\", \"[::1]:0\"]\ncollectors:\n  cpu: {rate: 100ms}\n  load: {enabled: false}\n",
            "a: &x {b: 1}\nc: *x\nrate: 0.5\nrate: 1\n",
            "level: 9\nnode: \"a\\tb\"\nunknown: [1, {x: y}]\n",
            "collector_rate: 1\naggregator_port: 4242\n",
            "",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
        seeds.push(default);
        seeds
    },
};

thread_local! {
    static DIR: TempDir = TempDir::new();
}

/// Every error has a message; an accepted file survives a round trip.
fn config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // It may name any file of the local machine, so the result would not depend on the input alone.
    if text.contains("include") && text.contains(['/', '.']) {
        return;
    }
    let path = DIR.with(|dir| dir.join("pegel.yaml"));
    fs::write(&path, input).expect("written");
    // The library keeps events and anchors of at most 100,000 nodes.
    let tree = bounded(128 << 20, || load(&path));
    let tree = match tree {
        Ok(tree) => tree,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let config = match read::<Config>(&tree) {
        Ok(config) => config,
        Err(error) => {
            assert!(
                error
                    .problems
                    .iter()
                    .all(|problem| !problem.message.is_empty())
            );
            return;
        }
    };
    let written = config.to_value();
    let lines: String = { written.entries().iter() }
        .map(|entry| format!("{}: {}\n", entry.key, entry.value.value.to_inline()))
        .collect();
    fs::write(&path, &lines).expect("written");
    let again = load(&path).and_then(|tree| read::<Config>(&tree));
    let again = again.unwrap_or_else(|error| panic!("{error}\nin {lines:?}"));
    assert_eq!(again.to_value(), written, "{lines:?}");
}
