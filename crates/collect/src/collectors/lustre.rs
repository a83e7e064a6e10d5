//! Operations of this node on Lustre file systems, from `llite/*/stats` below `/proc/fs/lustre` or
//! `/sys/kernel/debug/lustre`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, Words, label_value, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk_if_exists};
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    READ Counter 3 "node_lustre_read_bytes_total" "bytes" "Total number of bytes read by programs.";
    WRITTEN Counter 3 "node_lustre_write_bytes_total" "bytes" "Total number of bytes written by programs.";
    OPERATIONS Counter 3 "node_lustre_operations_total" "" "Total number of file system calls by programs, by operation.";
}

/// Runs on a thread of its own, because the kernel queries the servers for some values.
pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("lustre", Tier::FiveSeconds, FAMILIES, open);

const FOLDERS: [&str; 2] = ["proc/fs/lustre/llite", "sys/kernel/debug/lustre/llite"];

#[derive(Debug)]
struct LustreMounts;

fn open(context: &Context) -> OpenResult {
    let is_there = |folder: &&str| context.host.root.join(folder).is_dir();
    let folder = FOLDERS.into_iter().find(is_there).unwrap_or(FOLDERS[0]);
    open_walk_if_exists(context, folder, "", LustreMounts)
}

impl SysfsWalk for LustreMounts {
    fn walk(&mut self, llite: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        for mount in llite.names() {
            let file = format!("{mount}/stats");
            put.set_current_path(&llite.path().join(&file));
            // Skips mounts that are gone since the directory was listed.
            if let Ok(text) = llite.bytes(&file) {
                walk_stats(filesystem_name(&mount), &text, put)?;
            }
        }
        Ok(())
    }
}

/// Removes the address from a name such as `scratch-ffff8fd3b7d5b000`. It distinguishes two mounts
/// of one file system and changes with each mount.
fn filesystem_name(mount: &str) -> &str {
    let is_address = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    match mount.rsplit_once('-') {
        Some((name, address)) if is_address(address) => name,
        _ => mount,
    }
}

fn walk_stats(
    file_system: &str,
    text: &[u8],
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    for (number, line) in (1..).zip(text.split_inclusive(|&byte| byte == b'\n')) {
        let malformed = ProcParseError::at_line(number, "expected an operation and its counters");
        let Some((name, count, sum)) = parse(line.trim_ascii_end()).ok_or(malformed)? else {
            continue;
        };
        let operation = label_value(name);
        let labels = [("fs", file_system), ("operation", &*operation)];
        put.set(&OPERATIONS, &labels, count as f64)?;
        match name {
            b"read_bytes" => put.set(&READ, &labels[..1], sum as f64)?,
            b"write_bytes" => put.set(&WRITTEN, &labels[..1], sum as f64)?,
            _ => {}
        }
    }
    Ok(())
}

/// Parses `read_bytes  26 samples [bytes] 1 4096 80000`, or the same without sizes: the name, the
/// count and the sum. Returns `Some(None)` for lines with times.
#[allow(clippy::type_complexity, reason = "a name would hide the three parts")]
fn parse(line: &[u8]) -> Option<Option<(&[u8], u64, u64)>> {
    let mut words = Words(line);
    let (name, count) = (words.next()?, words.next()?);
    if words.next()? != b"samples" {
        return matches!(name, b"snapshot_time" | b"start_time" | b"elapsed_time").then_some(None);
    }
    let sum = words.nth(3).map_or(Some(0), parse_u64)?;
    Some(Some((name, parse_u64(count)?, sum)))
}

#[cfg(test)]
mod tests {
    use pegel_metric::SampleGroup;

    use super::*;
    use crate::collectors::testing::{present_series, update_fails};
    use crate::dynamic_series::DynamicSeries;

    fn update(text: &[u8], group: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut series = DynamicSeries::default();
        walk_stats("scratch", text, &mut series.begin_pass(group))
    }

    #[test]
    fn bytes_are_sums_and_the_rest_are_counts() {
        let mut group = SampleGroup::new("lustre", 3, 1000);
        let text = "snapshot_time             1730000000.123456789 secs.nsecs\n\
                    read_bytes                26 samples [bytes] 1 4096 80000\n\
                    open                      7 samples [reqs]\n";
        update(text.as_bytes(), &mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_lustre_operations_total{fs=\"scratch\",operation=\"read_bytes\"} 26",
                "node_lustre_read_bytes_total{fs=\"scratch\"} 80000",
                "node_lustre_operations_total{fs=\"scratch\",operation=\"open\"} 7",
            ]
        );
    }

    #[test]
    fn the_address_of_a_mount_is_removed() {
        assert_eq!(filesystem_name("scratch-ffff8fd3b7d5b000"), "scratch");
        assert_eq!(filesystem_name("my-scratch"), "my-scratch");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected an operation and its counters";
        update_fails(
            |text| update(text, &mut SampleGroup::new("lustre", 3, 1000)),
            &[
                ("open 7\n", 1, what),
                ("open x samples [reqs]\n", 1, what),
                (
                    "open 1 samples [reqs]\nread_bytes 1 samples [bytes] 1 2 x\n",
                    2,
                    what,
                ),
                ("\n", 1, what),
            ],
        );
    }
}
