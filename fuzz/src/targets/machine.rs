//! Any file of a whole machine, with all collectors at once: slower than a target for one file, but
//! it covers every collector.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pegel_collect::Execution;

use super::Target;
use super::node::{Node, ROOT, fixtures};
use crate::memory::bounded;

pub(super) const MACHINE: Target = Target {
    name: "machine",
    run: machine,
    dictionary: &[
        b"\n", b" kB\n", b"0x", b"max\n", b"on\n", b": ", b"N/A", b"total ",
    ],
    seeds: || {
        // One file of each name: the files of the second CPU are like those of the first.
        let mut seen = BTreeSet::new();
        let files = FILES.iter().filter(|file| seen.insert(file.file_name()));
        let seeds = files.map(|file| {
            let text = fs::read(fixtures().join("basic").join(file)).expect("a fixture");
            let text = &text[..text.len().min(1_500)];
            [file.to_string_lossy().as_bytes(), b"\n", text].concat()
        });
        seeds.collect()
    },
};

/// The files of the recorded machine, sorted.
static FILES: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let root = fixtures().join("basic");
    let mut files = Vec::new();
    find(&root, &root, &mut files);
    files.sort_unstable();
    files
});

fn find(root: &Path, dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find(root, &entry.path(), files),
            Ok(kind) if kind.is_file() => {
                let path = entry.path();
                files.push(path.strip_prefix(root).expect("below").to_owned());
            }
            _ => {}
        }
    }
}

/// Returns the file whose path shares the longest prefix with the text, so that mutated paths
/// select a file too.
fn nearest(text: &[u8]) -> &'static Path {
    let common = |file: &&PathBuf| {
        let path = file.as_os_str().as_encoded_bytes();
        path.iter().zip(text).take_while(|(a, b)| a == b).count()
    };
    FILES
        .iter()
        .max_by_key(common)
        .expect("a machine has files")
}

/// The first line names a file, the rest is its content. No collector panics, and all series return
/// when the file is restored.
fn machine(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (name, text) = input.split_at(end.unwrap_or(input.len()));
    let file = nearest(name);
    let good = fs::read(fixtures().join("basic").join(file)).expect("a fixture");
    ROOT.with(|root| {
        let path = root.join(file);
        bounded(64 << 20, || {
            let mut node = open(root.path());
            let before = pass(&mut node);
            fs::write(&path, text.get(1..).unwrap_or_default()).expect("written");
            pass(&mut node);
            // A set of collectors that is opened while the file is malformed.
            pass(&mut open(root.path()));
            fs::write(&path, &good).expect("written");
            // Enough for sources that are retried once a minute.
            let after = (0..11).map(|_| pass(&mut node)).last().unwrap_or_default();
            for (group, series) in before {
                let now = after.get(&group).copied().unwrap_or(0);
                assert!(
                    now >= series,
                    "{group}: {series} series before, {now} after {file:?}"
                );
            }
        });
    });
}

/// The inline collectors.
fn open(root: &Path) -> Node {
    Node::open(root, |entry| entry.execution != Execution::Threaded)
}

/// Returns the number of series of each group after a pass.
fn pass(node: &mut Node) -> BTreeMap<String, u64> {
    node.pass();
    let rows = node.tick.rows().iter();
    rows.map(|row| (row.members.group.to_string(), row.present_count()))
        .collect()
}
