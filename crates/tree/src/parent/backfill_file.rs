//! What a parent must know after a kill -9 to compute missing ticks again, in a file of the agent's
//! directory: the ticks that wait for it, the known nodes and since when values of them are
//! missing, and ticks whose change the parent of this agent may not know yet.
//!
//! The file is replaced as a whole, at most once per second. Marks that are younger than the file
//! follow from what it has: a node stops being missing only together with the ticks that its return
//! marked, and the ticks of the last seconds before a restart are always computed again.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use pegel_metric::Millis;
use pegel_plain_file::{read_plain, write_durably};
use pegel_tree_protocol::check_node_name;
use serde_json::{Value, json};

use super::dirty_ticks::TickRange;

/// The name of the file in the agent's directory.
pub(crate) const BACKFILL_FILE: &str = "tree-backfill.json";
const VERSION: u64 = 1;
/// The limits of the file: a larger one is damaged.
const FILE_BYTES_MAX: u64 = 64 << 20;
const NODES_MAX: usize = 100_000;

/// A node below the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownNode {
    /// The child through which it is reached; the node itself if it is a child.
    pub(crate) route: String,
    /// The time from which its values are missing. `None`: up to now nothing is.
    pub(crate) missing_since: Option<Millis>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BackfillState {
    pub(crate) dirty: Vec<TickRange>,
    pub(crate) nodes: BTreeMap<String, KnownNode>,
    pub(crate) changed: Vec<TickRange>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackfillFileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file is damaged")]
    Damaged,
}

impl BackfillState {
    /// Reads the file; without one, nothing is missing.
    pub(crate) fn load(dir: &Path) -> Result<BackfillState, BackfillFileError> {
        match read_plain(&dir.join(BACKFILL_FILE), FILE_BYTES_MAX + 1) {
            Ok(bytes) => BackfillState::parse(&bytes).ok_or(BackfillFileError::Damaged),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BackfillState::default()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn save(&self, dir: &Path) -> io::Result<()> {
        write_durably(dir, BACKFILL_FILE, self.to_json().to_string().as_bytes())
    }

    fn to_json(&self) -> Value {
        let nodes = self.nodes.iter().take(NODES_MAX).map(|(name, node)| {
            let entry = json!([node.route, node.missing_since]);
            (name.clone(), entry)
        });
        json!({
            "version": VERSION,
            "dirty": self.dirty,
            "nodes": nodes.collect::<serde_json::Map<_, _>>(),
            "changed": self.changed,
        })
    }

    fn parse(bytes: &[u8]) -> Option<BackfillState> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return None;
        }
        let file: Value = serde_json::from_slice(bytes).ok()?;
        if file["version"].as_u64()? != VERSION {
            return None;
        }
        let ranges = |value: &Value| {
            let ranges = value.as_array()?.iter().map(|range| {
                let (from, to) = (range.get(0)?.as_i64()?, range.get(1)?.as_i64()?);
                (from <= to).then_some((from, to))
            });
            ranges.collect::<Option<Vec<TickRange>>>()
        };
        let nodes = file["nodes"].as_object()?.iter().take(NODES_MAX);
        let nodes = nodes.map(|(name, entry)| {
            let route = entry.get(0)?.as_str()?.to_owned();
            check_node_name("node", name).ok()?;
            check_node_name("route", &route).ok()?;
            let missing_since = match entry.get(1)? {
                Value::Null => None,
                since => Some(since.as_i64()?),
            };
            let node = KnownNode {
                route,
                missing_since,
            };
            Some((name.clone(), node))
        });
        Some(BackfillState {
            dirty: ranges(&file["dirty"])?,
            nodes: nodes.collect::<Option<_>>()?,
            changed: ranges(&file["changed"])?,
        })
    }
}

/// Parses the file and writes it again; `None` if it is damaged. For fuzz targets.
pub fn parse_backfill_file(bytes: &[u8]) -> Option<String> {
    BackfillState::parse(bytes).map(|state| state.to_json().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    fn state() -> BackfillState {
        BackfillState {
            dirty: vec![(1000, 5000), (9000, 9000)],
            nodes: [("m1", "m1", None), ("n1", "m1", Some(1234))]
                .into_iter()
                .map(|(name, route, missing_since)| {
                    let route = route.to_owned();
                    let node = KnownNode {
                        route,
                        missing_since,
                    };
                    (name.to_owned(), node)
                })
                .collect(),
            changed: vec![(3000, 4000)],
        }
    }

    #[test]
    fn the_state_is_read_as_it_was_written() {
        let dir = TempDir::new();
        let none = BackfillState::load(dir.path()).expect("no file");
        assert_eq!(none, BackfillState::default());
        state().save(dir.path()).expect("written");
        assert_eq!(BackfillState::load(dir.path()).expect("read"), state());
    }

    #[test]
    fn every_truncated_file_is_damaged() {
        let dir = TempDir::new();
        state().save(dir.path()).expect("written");
        let path = dir.join(BACKFILL_FILE);
        let bytes = fs::read(&path).expect("read");
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).expect("written");
            let error = BackfillState::load(dir.path()).expect_err("truncated");
            assert!(matches!(error, BackfillFileError::Damaged), "{length}");
        }
        for text in [
            "{}",
            r#"{"version":2,"dirty":[],"nodes":{},"changed":[]}"#,
            r#"{"version":1,"dirty":[[5,1]],"nodes":{},"changed":[]}"#,
            r#"{"version":1,"dirty":[],"nodes":{"a/b":["a",1]},"changed":[]}"#,
        ] {
            fs::write(&path, text).expect("written");
            BackfillState::load(dir.path()).expect_err(text);
        }
    }
}
