//! Checks the store's directory: type of file system and free space.

use std::path::{Path, PathBuf};

use pegel_agent::FileSystemKind;
use serde_json::Value;

use super::finding::Finding;
use super::pluralize;

/// Below this, even the log soon runs out of space.
const FREE_BYTES_MIN: u64 = 16 << 20;

#[derive(Debug, Clone)]
pub(super) struct DiskProbe {
    pub dir: PathBuf,
    pub file_system: FileSystemKind,
    pub free: Option<u64>,
    /// Bytes that the store uses, and its limit.
    pub used: u64,
    pub limit: u64,
}

/// Examines the store of the running agent, else of one started now with `dir` and `limit`.
pub(super) fn probe(status: Option<&Value>, dir: &Path, limit: u64) -> DiskProbe {
    let store = status.map(|status| &status["store"]);
    let dir = store
        .and_then(|store| store["dir"].as_str())
        .map_or(dir, Path::new);
    let bytes = |key: &str| store.and_then(|store| store[key].as_u64()).unwrap_or(0);
    let volume = dir
        .ancestors()
        .find_map(|dir| rustix::fs::statvfs(dir).ok());
    DiskProbe {
        dir: dir.to_owned(),
        file_system: pegel_agent::file_system_kind(dir),
        free: volume.map(|found| found.f_bavail * found.f_frsize),
        used: bytes("log_bytes") + bytes("block_bytes"),
        limit: status
            .and_then(|status| status["limits"]["disk_bytes"].as_u64())
            .unwrap_or(limit),
    }
}

pub(super) fn evaluate(facts: &DiskProbe) -> Vec<Finding> {
    let dir = facts.dir.display();
    let mut findings = vec![match facts.file_system {
        FileSystemKind::Local => Finding::ok("place", format!("{dir}")),
        FileSystemKind::Memory => Finding::better(
            "place",
            format!("{dir} is on a tmpfs: the store is lost on reboot"),
            "pegel agent --dir /var/lib/pegel, or another directory on a disk",
        ),
        FileSystemKind::Network(kind) => Finding::better(
            "place",
            format!("{dir} is on {kind}: slow, and a network outage stops the store"),
            "pegel agent --dir /tmp/pegel, or another directory on a local disk",
        ),
    }];
    findings.extend(facts.free.map(|free| {
        let growth = facts.limit.saturating_sub(facts.used);
        let message = format!(
            "{} free, the store may grow by {}",
            pluralize::format_bytes(free),
            pluralize::format_bytes(growth)
        );
        if free < FREE_BYTES_MIN {
            return Finding::broken(
                "room",
                message,
                format!(
                    "free disk space; find large directories with: du -xhd1 {} | sort -h",
                    nearest_directory(&facts.dir)
                ),
            );
        }
        if free >= growth {
            return Finding::ok("room", message);
        }
        Finding::better(
            "room",
            message,
            format!(
                "set keep.bytes to {} or less, or free disk space",
                pluralize::format_bytes(facts.used + free / 2)
            ),
        )
    }));
    findings
}

/// Returns the nearest existing ancestor directory.
fn nearest_directory(dir: &Path) -> String {
    let existing = dir.ancestors().find(|dir| dir.is_dir());
    existing.unwrap_or(Path::new("/")).display().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::FindingState;

    fn states(file_system: FileSystemKind, free: u64) -> Vec<FindingState> {
        let facts = DiskProbe {
            dir: PathBuf::from("/nowhere/pegel"),
            file_system,
            free: Some(free),
            used: 1 << 29,
            limit: 1 << 30,
        };
        evaluate(&facts)
            .into_iter()
            .map(|finding| finding.state)
            .collect()
    }

    #[test]
    fn a_local_disk_with_enough_space_is_ok() {
        assert_eq!(
            states(FileSystemKind::Local, 1 << 29),
            [FindingState::Ok, FindingState::Ok]
        );
    }

    #[test]
    fn other_file_systems_and_less_space_could_be_better() {
        assert_eq!(
            states(FileSystemKind::Memory, (1 << 29) - 1),
            [FindingState::Better; 2]
        );
        assert_eq!(
            states(FileSystemKind::Network("NFS"), 1 << 40),
            [FindingState::Better, FindingState::Ok]
        );
    }

    #[test]
    fn a_full_disk_is_broken() {
        assert_eq!(
            states(FileSystemKind::Local, 1 << 20)[1],
            FindingState::Broken
        );
    }

    #[test]
    fn the_status_of_a_running_agent_takes_precedence() {
        let status = json!({
            "store": {"dir": "/tmp", "log_bytes": 3, "block_bytes": 4},
            "limits": {"disk_bytes": 70},
        });
        let facts = probe(Some(&status), Path::new("/elsewhere"), 1);
        assert_eq!(
            (facts.dir, facts.used, facts.limit),
            (PathBuf::from("/tmp"), 7, 70)
        );
        let facts = probe(None, Path::new("/elsewhere/x"), 1);
        assert_eq!(
            (facts.used, facts.limit, facts.free.is_some()),
            (0, 1, true)
        );
    }
}
