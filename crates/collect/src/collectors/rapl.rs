//! Energy of packages, cores and memory, counted by the processor (RAPL), from
//! `/sys/class/powercap`.
//!
//! The hardware counter wraps, on a busy package within minutes. Wraps are added up, so the series
//! never decreases. Since Linux 5.10 only root may read the counters. Runs on a thread of its own.

use std::collections::BTreeMap;
use std::io;

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    JOULES Counter 3 "node_rapl_<key>_joules_total" "joules" "Total energy used by a domain (<key>) of the processor, in joules.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("rapl", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk(context, "sys/class/powercap", RaplZones::default())
    });

#[derive(Debug, Default)]
struct RaplZones {
    counters: BTreeMap<String, WrappingCounter>,
    failure: Option<String>,
}

/// Extends a counter that wraps after `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WrappingCounter {
    last: u64,
    wrapped: u64,
}

impl WrappingCounter {
    /// Returns the total since the first reading. If the range is unknown, a decrease counts as a
    /// reset.
    fn update(&mut self, now: u64, max: Option<u64>) -> u64 {
        if now < self.last {
            self.wrapped += max.unwrap_or(0).max(self.last);
        }
        self.last = now;
        self.wrapped.saturating_add(now)
    }
}

impl SysfsWalk for RaplZones {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        self.failure = None;
        let mut seen = BTreeMap::new();
        for zone in class.names() {
            let Some(folder) = class.subdir(&zone) else {
                continue;
            };
            put.set_current_path(folder.path());
            let Some(name) = folder.text("name") else {
                continue;
            };
            let energy = match folder.bytes("energy_uj") {
                Ok(text) => parse_u64(text.trim_ascii()),
                Err(error) => {
                    self.record_denied(&folder, &error);
                    None
                }
            };
            let (part, index) = part_and_index(&name, &mut seen);
            let Some(now) = energy else { continue };
            let range = folder.unsigned("max_energy_range_uj");
            let counter = self
                .counters
                .entry(zone.clone())
                .or_insert(WrappingCounter {
                    last: now,
                    wrapped: 0,
                });
            let joules = counter.update(now, range) as f64 / 1e6;
            let path = format!("/sys/class/powercap/{zone}");
            put.set_keyed(
                &JOULES,
                &part,
                &[("index", &index), ("path", &path)],
                joules,
            )?;
        }
        Ok(())
    }

    fn partial_failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl RaplZones {
    fn record_denied(&mut self, folder: &SysfsDir, error: &io::Error) {
        if error.kind() == io::ErrorKind::PermissionDenied && self.failure.is_none() {
            let path = folder.path().join("energy_uj");
            self.failure = Some(format!(
                "not permitted to read {}; run the agent with CAP_DAC_READ_SEARCH or make the file readable for its group",
                path.display()
            ));
        }
    }
}

/// Splits the name of a zone: `package-1` is the second package. Zones of the same name are
/// numbered in order.
fn part_and_index(name: &str, seen: &mut BTreeMap<String, usize>) -> (String, String) {
    if let Some((part, index)) = name.split_once('-')
        && parse_u64(index.as_bytes()).is_some()
    {
        return (part.to_owned(), index.to_owned());
    }
    let count = seen.entry(name.to_owned()).or_insert(0);
    *count += 1;
    (name.to_owned(), (*count - 1).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_are_added_up_and_the_total_never_decreases() {
        let mut counter = WrappingCounter {
            last: 900,
            wrapped: 0,
        };
        let max = Some(1_000);
        let seen: Vec<u64> = [950, 20, 999, 0, 5]
            .into_iter()
            .map(|now| counter.update(now, max))
            .collect();
        assert_eq!(seen, [950, 1_020, 1_999, 2_000, 2_005]);
        assert_eq!(counter.update(1, None), 2_006, "without a range");
    }

    #[test]
    fn a_denied_file_is_reported_with_a_remedy() {
        let mut zones = RaplZones::default();
        let folder = SysfsDir::open(std::path::Path::new("/")).expect("a root");
        zones.record_denied(&folder, &io::ErrorKind::NotFound.into());
        assert_eq!(
            zones.partial_failure(),
            None,
            "a missing zone is not reported"
        );
        zones.record_denied(&folder, &io::ErrorKind::PermissionDenied.into());
        let trouble = zones.partial_failure().expect("failed");
        assert!(
            trouble.starts_with("not permitted to read /energy_uj; "),
            "{trouble}"
        );
    }

    #[test]
    fn zones_have_a_name_and_an_index() {
        let mut seen = BTreeMap::new();
        let mut part = |name: &str| {
            let (part, index) = part_and_index(name, &mut seen);
            format!("{part} {index}")
        };
        assert_eq!(part("package-1"), "package 1");
        assert_eq!(part("dram"), "dram 0");
        assert_eq!(part("dram"), "dram 1");
        assert_eq!(part("psys"), "psys 0");
        assert_eq!(part("package-x"), "package-x 0");
    }
}
