//! Memory statistics: every line of `/proc/meminfo`.
//!
//! Runs on the sampler's thread at every tick. Series are declared when a key first appears, so that keys of newer
//! kernels are published without a change here.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

static BYTES: Family = Family::new(
    "node_memory_<key>_bytes",
    MetricKind::Gauge,
    "bytes",
    2,
    "Field of /proc/meminfo, in bytes; a part in parentheses is appended with an underscore.",
);
static COUNT: Family = Family::new(
    "node_memory_<key>",
    MetricKind::Gauge,
    "",
    2,
    "Field of /proc/meminfo without a unit.",
);
static USED: Family = Family::new(
    "used_RAM",
    MetricKind::Gauge,
    "",
    2,
    "Share of memory that is not available to new programs, in percent.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "memory",
    tier: Tier::Fast,
    execution: Execution::Inline,
    level: 2,
    families: &[&BYTES, &COUNT, &USED],
    open,
};

#[derive(Debug)]
struct MemoryReadings {
    keys: CursorMap<Slot>,
    used: UnlabelledSeries,
}

#[derive(Debug, PartialEq)]
struct MeminfoLine<'a> {
    /// The key of its series: includes the unit, because a size and a plain number of the same name are two series.
    id: &'a [u8],
    key: &'a [u8],
    value: f64,
    is_bytes: bool,
}

/// The sizes from which the share of used memory is computed.
#[derive(Debug, Default)]
struct MemorySizes {
    total: f64,
    available: Option<f64>,
    free: f64,
    buffers: f64,
    cached: f64,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("meminfo");
    open_files([(path, ReadMode::SingleRead, MemoryReadings::new())])
}

impl MemoryReadings {
    fn new() -> MemoryReadings {
        MemoryReadings {
            keys: CursorMap::new(),
            used: UnlabelledSeries::new(&USED),
        }
    }
}

impl FileParser for MemoryReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut sizes = MemorySizes::default();
        self.keys.begin_pass();
        for (number, line) in non_empty_lines(text)? {
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected a key and a size",
            };
            let line = parse(line).ok_or(malformed)?;
            let slot = self.keys.entry(line.id, || declare(&line, out))?;
            out.set(*slot, line.value);
            sizes.record(&line);
        }
        self.keys.sweep(|slot| out.retire(slot));
        if let Some(percent) = sizes.used_percent() {
            self.used.set(out, percent)?;
        }
        Ok(())
    }
}

impl MemorySizes {
    fn record(&mut self, line: &MeminfoLine<'_>) {
        match line.key {
            b"MemTotal" => self.total = line.value,
            b"MemAvailable" => self.available = Some(line.value),
            b"MemFree" => self.free = line.value,
            b"Buffers" => self.buffers = line.value,
            b"Cached" => self.cached = line.value,
            _ => {}
        }
    }

    fn used_percent(&self) -> Option<f64> {
        // Kernels before 3.14 do not have MemAvailable.
        let available = self
            .available
            .unwrap_or(self.free + self.buffers + self.cached);
        (self.total > 0.0).then(|| (self.total - available) / self.total * 100.0)
    }
}

fn declare(line: &MeminfoLine<'_>, out: &mut SampleGroup) -> Result<Slot, ProcParseError> {
    // The parser accepts only ASCII keys.
    let key = String::from_utf8_lossy(line.key);
    let base = if line.is_bytes { &BYTES } else { &COUNT };
    let name = base
        .name
        .replace("<key>", &key.replace('(', "_").replace(')', ""));
    let help = if line.is_bytes {
        format!("Field {key} of /proc/meminfo, in bytes.")
    } else {
        format!("Field {key} of /proc/meminfo.")
    };
    let family = Family {
        name: name.into(),
        help: help.into(),
        ..base.clone()
    };
    Ok(out.declare(&Arc::new(family), &[])?)
}

/// Parses `Key:  123 kB`, or the same without a unit.
fn parse(line: &[u8]) -> Option<MeminfoLine<'_>> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (key, rest) = line.split_at(colon);
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'(' | b')');
    if key.is_empty() || !key.iter().all(is_key) {
        return None;
    }
    let mut words = Words(&rest[1..]);
    let number = parse_u64(words.next()?)?;
    match words.next() {
        None => Some(MeminfoLine {
            id: &line[..=colon],
            key,
            value: number as f64,
            is_bytes: false,
        }),
        Some(b"kB") => Some(MeminfoLine {
            id: key,
            key,
            value: number as f64 * 1024.0,
            is_bytes: true,
        }),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    fn update(text: &str) -> Vec<String> {
        let mut group = SampleGroup::new("memory", 3, 1000);
        MemoryReadings::new()
            .update(text.as_bytes(), &mut group)
            .expect("valid");
        present_series(&mut group)
    }

    #[test]
    fn keys_become_names() {
        assert_eq!(
            update("Active(anon):  2 kB\nHugePages_Total:  18446744073709551615\nX1: 0 kB\n"),
            [
                "node_memory_Active_anon_bytes 2048",
                "node_memory_HugePages_Total 1.8446744073709552e19",
                "node_memory_X1_bytes 0",
            ]
        );
    }

    #[test]
    fn a_key_with_and_without_a_unit_is_two_series() {
        let (mut readings, mut group) =
            (MemoryReadings::new(), SampleGroup::new("memory", 3, 1000));
        for (text, expected) in [
            ("X: 2 kB\n", "node_memory_X_bytes 2048"),
            ("X: 2\n", "node_memory_X 2"),
        ] {
            group.clear();
            readings.update(text.as_bytes(), &mut group).expect("valid");
            assert_eq!(present_series(&mut group), [expected]);
        }
    }

    #[test]
    fn used_memory_is_what_is_not_available() {
        let found = update("MemTotal: 200 kB\nMemFree: 10 kB\nMemAvailable: 50 kB\n");
        assert_eq!(found[3], "used_RAM 75");
        let found = update("MemTotal: 200 kB\nMemFree: 10 kB\nBuffers: 20 kB\nCached: 70 kB\n");
        assert_eq!(found[4], "used_RAM 50", "before kernel 3.14");
        assert_eq!(update("MemTotal: 0 kB\n").len(), 1, "no share of nothing");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let update = |text: &[u8]| {
            MemoryReadings::new().update(text, &mut SampleGroup::new("memory", 3, 1000))
        };
        let what = "expected a key and a size";
        update_fails(
            update,
            &[
                ("", 0, "the file is empty"),
                ("MemTotal: 1 kB\nMemFr", 2, "the last line is cut off"),
                ("MemTotal: 1 kB\nMemFree:\n", 2, what),
                ("MemTotal: 1 MB\n", 1, what),
                ("Mem\"Total: 1 kB\n", 1, what),
                (": 1 kB\n", 1, what),
                ("MemTotal: 18446744073709551616 kB\n", 1, what),
                ("\n", 1, what),
            ],
        );
    }
}
