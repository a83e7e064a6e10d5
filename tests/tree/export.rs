//! `pegel export` on a parent: the samples of every node below it, in folders of their own.

use std::fs;
use std::path::Path;

use pegel_testkit::{TempDir, eventually};

use crate::tree_agent::TreeAgent;

/// Returns times and values of the series `hits_total` in the exported files of a node.
fn exported(dir: &Path, node: &str) -> Vec<(i64, f64)> {
    let mut samples = Vec::new();
    for day in fs::read_dir(dir).expect("days") {
        let folder = day.expect("a day").path().join(format!("node={node}"));
        for file in fs::read_dir(folder).into_iter().flatten() {
            let text = fs::read_to_string(file.expect("a file").path()).expect("text");
            // time,name,labels,value,kind,input
            for line in text.lines().filter(|line| line.contains(",hits_total,")) {
                let time = line.split(',').next().and_then(|time| time.parse().ok());
                let value = line.rsplit(',').nth(2).and_then(|value| value.parse().ok());
                samples.push(time.zip(value).unwrap_or_else(|| panic!("{line}")));
            }
        }
    }
    samples
}

#[test]
fn every_node_is_exported_in_its_own_folder_and_missing_ones_are_named() {
    let (root, root_address) = TreeAgent::head("root");
    let (_middle, address) = TreeAgent::middle("mid", &[root_address]);
    let mut leaves = ["a", "b"].map(|name| TreeAgent::child(name, &[address]));
    for (leaf, count) in leaves.iter().zip([10, 20]) {
        leaf.counter("hits_total").add(count);
    }
    root.all_up(&["a", "b", "mid", "root"]);
    for (leaf, count) in leaves.iter().zip([10.0, 20.0]) {
        eventually("the counter is stored", || {
            let stored = leaf.stored("hits_total");
            let is_there = stored.iter().any(|(_, value)| *value == count);
            is_there.then_some(()).ok_or(stored)
        });
    }
    let home = TempDir::new();
    let export = |dir: &str, more: &[&str]| {
        let to = home.join(dir).display().to_string();
        let args = ["export", "--to", &to, "-f", "csv", "--match", "hits_total"];
        root.agent().client(&[&args, more].concat())
    };

    let before = leaves.each_ref().map(|leaf| leaf.stored("hits_total"));
    let done = export("all", &[]);
    assert_eq!(done.code(), Some(0), "{done}");
    for (leaf, before) in leaves.iter().zip(before) {
        let (found, after) = (
            exported(&home.join("all"), &leaf.name),
            leaf.stored("hits_total"),
        );
        let missing = before.iter().find(|sample| !found.contains(sample));
        assert_eq!(missing, None, "{}: {found:?}", leaf.name);
        let unknown = found.iter().find(|sample| !after.contains(sample));
        assert_eq!(unknown, None, "{}: {after:?}", leaf.name);
    }

    let one = export("one", &["--node", "b"]);
    assert_eq!(one.code(), Some(0), "{one}");
    assert!(!exported(&home.join("one"), "b").is_empty());
    assert_eq!(exported(&home.join("one"), "a"), []);

    leaves[1].kill();
    eventually("the parent misses the node", || {
        let states = root.node_states();
        let is_up = states.contains(&("b".to_owned(), "up".to_owned()));
        (!is_up).then_some(()).ok_or(states)
    });
    let part = export("part", &[]);
    assert_eq!(part.code(), Some(1), "{part}");
    assert!(part.stderr.contains("not exported: b: "), "{part}");
    assert!(part.stdout.contains(" samples, "), "{part}");
    assert!(!exported(&home.join("part"), "a").is_empty());
}
