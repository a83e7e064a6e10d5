//! The kernel's files, each with its own collector, read through the same code path as in the
//! agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pegel_collect::CollectorState;

use super::Target;
use super::node::{Node, ROOT, fixtures};
use crate::memory::bounded;

/// Separates the texts of the file in consecutive passes.
const NEXT_PASS: u8 = 0x1e;

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target {
        name,
        run,
        dictionary: &[
            b"\x1e",
            b"\n",
            b"cpu0 1 2 3 4\n",
            b" kB\n",
            b"total=",
            b"some ",
            b"full ",
            b"intr ",
            b"btime ",
            b"eth0:",
            b"sda ",
            b"nvme0n1p1 ",
            b"E:ID_MODEL=",
            b"oom_kill ",
            b"pgfault ",
            b") S ",
            b"Inter-|   Receive\n",
        ],
        seeds,
    }
}

macro_rules! targets {
    ($($static:ident $name:literal $collector:literal $file:literal;)*) => {
        $(pub(super) const $static: Target = target(
            $name,
            |input| passes(&FuzzedFile { collector: $collector, file: $file }, input),
            || seeds($file),
        );)*
    };
}

targets! {
    CPU "cpu" "cpu" "proc/stat";
    STAT "stat" "stat" "proc/stat";
    MEMORY "memory" "memory" "proc/meminfo";
    LOAD "load" "load" "proc/loadavg";
    UPTIME "uptime" "load" "proc/uptime";
    PRESSURE "pressure" "pressure" "proc/pressure/io";
    DISK "disk" "disk" "proc/diskstats";
    UDEV "udev" "disk" "run/udev/data/b8:0";
    NETWORK "network" "network" "proc/net/dev";
    VMSTAT "vmstat" "vmstat" "proc/vmstat";
    PROCESS "process" "agent" "proc/self/stat";
}

struct FuzzedFile {
    collector: &'static str,
    file: &'static str,
}

impl FuzzedFile {
    fn open(&self, root: &Path) -> Node {
        Node::open(root, |entry| entry.name == self.collector)
    }

    /// Returns the present series after a pass, or the error.
    fn pass(&self, node: &mut Node) -> Result<BTreeMap<String, f64>, String> {
        let all = node.pass();
        let status = all.iter().find(|status| status.name == self.collector);
        let status = status.expect("known");
        let mut values = BTreeMap::new();
        for row in node.tick.rows() {
            for (index, series) in row.members.series.iter().enumerate() {
                if row.is_present(index) {
                    assert!(
                        row.values[index].is_finite(),
                        "{series} is {}",
                        row.values[index]
                    );
                    values.insert(series.text().to_owned(), row.values[index]);
                }
            }
            let texts: BTreeSet<&str> = row
                .members
                .series
                .iter()
                .map(|series| series.text())
                .collect();
            // Parentheses and underscores of a memory key map to the same character in a name.
            let is_distinct = texts.len() == row.members.series.len();
            assert!(
                is_distinct || self.collector == "memory",
                "a series is declared twice"
            );
        }
        match (&status.state, &status.error) {
            (CollectorState::Active, None) => Ok(values),
            (CollectorState::Failed, Some(error)) => {
                assert!(
                    values.is_empty(),
                    "values of a failed collector: {values:?}"
                );
                Err(error.clone())
            }
            _ => panic!("{status:?}"),
        }
    }
}

/// For any content in consecutive passes, the result is an error with a reason or values; when the
/// file is restored, all its series are present.
fn passes(source: &FuzzedFile, input: &[u8]) {
    ROOT.with(|root| {
        let path = root.join(source.file);
        let good = fs::read(fixtures().join("basic").join(source.file)).expect("a fixture");
        bounded(64 << 20, || {
            let texts = input.split(|byte| *byte == NEXT_PASS).take(8);
            let mut node: Option<Node> = None;
            for text in texts {
                write(&path, text);
                let node = node.get_or_insert_with(|| source.open(root.path()));
                let _ = source.pass(node);
            }
            write(&path, &good);
            let mut fresh = source.open(root.path());
            let expected = source.pass(&mut fresh).expect("a good file");
            if let Some(node) = &mut node
                && source.file != "run/udev/data/b8:0"
            {
                let found = source.pass(node).expect("a good file again");
                let names = |values: &BTreeMap<String, f64>| -> BTreeSet<String> {
                    // The first requires two passes; the others count the passes themselves.
                    let own = |name: &&String| {
                        !name.starts_with("cpu_percent") && !name.starts_with("pegel_collector")
                    };
                    values.keys().filter(own).cloned().collect()
                };
                let (found, expected) = (names(&found), names(&expected));
                let different: Vec<&String> = found.symmetric_difference(&expected).collect();
                assert!(different.is_empty(), "only before or after: {different:?}");
            }
        });
    });
}

/// Writes in place: the collector keeps the file open.
fn write(path: &Path, text: &[u8]) {
    fs::write(path, text).expect("written");
}

fn seeds(file: &str) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for fixture in ["basic", "old"] {
        if let Ok(text) = fs::read(fixtures().join(fixture).join(file)) {
            // A valid file, half of it, an empty one, and the file again.
            let half = &text[..text.len() / 2];
            seeds.push([&text, half, b"", &text].join(&NEXT_PASS));
            // The last line disappears and returns.
            let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
            let shorter = lines[..lines.len() - 1].concat();
            seeds.push([&text[..], &shorter, &text].join(&NEXT_PASS));
            seeds.push(text);
        }
    }
    seeds
}
